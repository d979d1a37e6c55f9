"""One stream: its numbers, its work, its receives, and what arrives on it (chapters 4, 8 and 10)."""

from collections import deque

from .serial import add, ahead


class Stream:
    def __init__(self, number, state, first_msn, first_rqsn, domain, peer_limit=None, opened_here=False):
        self.number, self.state, self.domain, self.opened_here = number, state, domain, opened_here
        self.first_msn, self.first_rqsn = first_msn, first_rqsn
        # What this side sends.
        self.work = deque()            # not complete, in the order in which it was posted
        self.next_index = 0            # of the first of `work` that is not wholly sent
        self.responses = deque()       # not wholly sent
        self.next_msn, self.next_rqsn = first_msn, first_rqsn
        self.credit = peer_limit       # RqLimit of the peer; None before there is one
        self.credit_timestamp = None   # of the packet that it came with
        self.credit_time = 0           # when that came
        self.asking = None             # transaction id of an RQ_CREDIT without an answer
        self.ask_at = 0                # not sooner than this
        self.flush_unbegun = False     # CLOSE of the peer has come: what has not begun is flushed in its turn
        self.psns = 0                  # unacknowledged PSNs that bear this stream
        self.error = False             # work has been completed with an error
        self.refuse = None             # (work, status): work that fails here when its turn comes
        # What arrives.
        self.receives = {}             # RQSN -> Receive that is not consumed, in the order in which they were posted
        self.receive_base = first_rqsn # lowest that is not consumed
        self.next_receive = first_rqsn # RQSN of the next one that is posted, unless one was taken away
        self.freed = []                # RQSNs of receives that were taken away
        self.reported = None           # RqLimit that was reported last
        self.used_rqsn = first_rqsn    # the one after the highest RQSN that has arrived
        self.tell = False              # a telling RQ_CREDIT is due
        self.inbound = {}              # MSN -> Inbound
        self.low_msn = first_msn       # lowest that has not arrived as a whole
        self.deliver_msn = first_msn   # lowest that is not complete
        self.stopped = False           # nothing is delivered any more
        self.refusals = {}             # (RESP, MSN) -> Refusal
        self.granted = 0               # receives of a shared queue that are promised and not consumed
        self.bound = 0                 # of them bound to a message
        self.reset_code = self.reset_msn = 0
        self.reset_at = None           # when it has been reset for this side
        self.opened_told = False

    def post(self, receive):
        """Numbers a receive (RCV-001); one that was taken away has left its number to the next."""
        if self.freed:
            rqsn = min(self.freed, key=lambda n: ahead(n, self.receive_base, 16))
            self.freed.remove(rqsn)
        else:
            rqsn = self.next_receive
            self.next_receive = add(rqsn, 1, 16)
        self.receives[rqsn] = receive

    def withdraw(self, wr_id):
        """Takes the latest receive with this number back, unless a message fills it. Returns whether there was one."""
        for rqsn, receive in reversed(list(self.receives.items())):
            if receive.wr_id == wr_id and not receive.bound:
                del self.receives[rqsn]
                self.freed.append(rqsn)
                return True
        return False

    def limit(self):
        """RqLimit: the first RQSN without a receive, at most 32767 ahead of the lowest that is not consumed (RCV-003)."""
        base = self.receive_base
        first = min([ahead(self.next_receive, base, 16)] + [ahead(n, base, 16) for n in self.freed])
        return add(base, min(max(first, self.granted), 32767), 16)

    def has_credit(self, rqsn):
        return self.credit is not None and ahead(self.credit, rqsn, 16) > 0


class Refusal:
    """A message that was refused for good: its NAK is repeated until the peer has ended stream or connection."""

    def __init__(self, code, packet, plane):
        self.code = code
        self.at(packet, plane)
        self.last_nak = None
        self.next_nak = 0
        self.repetitions = 0

    def at(self, packet, plane):
        """The packet that was refused last."""
        self.path, self.epoch, self.psn, self.msn, self.plane = (
            packet.path, packet.epoch, packet.psn, packet.msn, plane)
