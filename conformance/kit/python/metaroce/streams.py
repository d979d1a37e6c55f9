"""Opening and resetting streams, receives and credit (chapters 4, 10 and 14)."""

from collections import deque

from . import wire
from .codec import Packet
from .serial import add, ahead
from .settings import NEVER
from .stream import Stream
from .work import Receive


class Streams:
    def start_streams(self):
        self.streams = {}
        self.next_stream = 0 if self.initiator else 1
        first = self.settings.first_streams
        self.first_streams = self.streams_agreed if first is None else min(first, self.streams_agreed)
        self.opened_first = 0
        self.srq = deque()            # receives of the shared queue that are not bound
        self.reset_answers = {}       # stream -> (transaction id of a STREAM_RESET that was answered, time)
        self.told_established = False

    def open_first_streams(self):
        """The initiator opens what it needs at first; without any the connection is established at once."""
        if self.initiator:
            for _ in range(self.first_streams):
                self.open_stream()
        self.check_established()

    def check_established(self):
        if not self.told_established and self.opened_first >= self.first_streams and self.state == "connected":
            self.told_established = True
            self.state = "established"
            self.event("established", paths=self.paths_agreed, streams=self.streams_agreed)

    def streams_in_use(self, unanswered=True):
        states = ("open", "resetting", "opening") if unanswered else ("open", "resetting")
        return sum(s.state in states for s in self.streams.values())

    def open_stream(self, domain=None):
        """Asks for a stream; returns it, or None where no further one is possible (STRM-041)."""
        if self.over or self.close_reason is not None or self.streams_in_use() >= self.streams_agreed:
            return None
        number = self.free_number()
        if number is None:
            return None
        stream = Stream(number, "opening", self.rng.getrandbits(24), self.rng.getrandbits(16),
                        self.settings.domain if domain is None else domain, opened_here=True)
        self.streams[number] = stream
        self.grant()
        stream.request = self.ask(
            "STREAM_OPEN", lambda packet: self.stream_answered(stream, packet), lambda: self.stream_silence(stream),
            stream=number, status=0, first_msn=stream.first_msn, first_rqsn=stream.first_rqsn,
            rq_limit=self.report_limit(stream), src_qpn=0x100 + number, dst_qpn=0)
        return stream

    def free_number(self):
        """The next stream id of this side that is not in use and does not rest (STRM-001, ERR-018)."""
        for _ in range(0x8000):
            number = self.next_stream
            self.next_stream = (self.next_stream + 2) & 0xFFFF
            if number not in self.streams:
                return number
        return None

    def stream_answered(self, stream, packet):
        if stream.state != "opening":
            return
        if packet.status != wire.STREAM_OK:
            self.flush_stream(stream)
            self.stream_over(stream, "void")
            if not self.told_established:
                self.fail("IBV_WC_RETRY_EXC_ERR", "a stream was refused")
            return
        self.take_credit(stream, packet)
        self.stream_open(stream)

    def stream_open(self, stream):
        stream.state = "open"
        self.opened_first += stream.opened_here or not self.initiator
        if self.told_established:
            self.event("stream_opened", stream=stream.number)
        self.check_established()
        self.deliver(stream)

    def stream_silence(self, stream):
        if stream.state != "opening":
            return
        if self.agreed("reset"):
            self.reset_stream(stream)
        else:
            self.flush_stream(stream)
            self.fail("IBV_WC_RETRY_EXC_ERR", "STREAM_OPEN stays unanswered")

    def on_stream_open_ack(self, packet, plane, now):
        request = self.take_answer(packet, "STREAM_OPEN")
        if request is not None and packet.stream == request.fields["stream"]:
            del self.requests[request.txid]
            request.on_answer(packet)

    def on_stream_open(self, packet, plane, now):
        if self.repeated(packet, "STREAM_OPEN_ACK", plane):
            return
        reset = self.reset_answers.get(packet.stream)
        if reset and ahead(packet.psn, reset[0]) < 0 and now - reset[1] < self.settings.answer_time:
            self.counters["silence"] += 1   # STRM-048
            return
        number = packet.stream
        status, limit, qpn = wire.STREAM_OK, 0, 0x100 + number
        if number in self.streams or number & 1 == (0 if self.initiator else 1):
            status = wire.STREAM_IN_USE
        elif self.streams_in_use(unanswered=self.initiator) >= self.streams_agreed:
            status = wire.STREAM_NO_RESOURCE
        stream = None
        if status == wire.STREAM_OK:
            stream = Stream(number, "open", packet.first_msn, packet.first_rqsn, self.settings.domain)
            stream.flush_unbegun = self.peer_close is not None
            self.streams[number] = stream
            self.take_credit(stream, packet)
            self.grant()
            limit = self.report_limit(stream)
        else:
            qpn = 0
        self.remember(packet, "STREAM_OPEN_ACK", plane, stream=number, status=status, first_msn=packet.first_msn,
                      first_rqsn=packet.first_rqsn, rq_limit=limit, src_qpn=qpn, dst_qpn=packet.src_qpn)
        if stream is not None:
            self.stream_open(stream)

    # Reset.

    def reset_stream(self, stream, code=0, msn=0, work=None, status=None):
        """Ends a stream from this side: `work` gets `status`, the rest is flushed (chapter 14)."""
        if stream.state not in ("open", "opening"):
            return
        if not self.agreed("reset"):
            if work is None:
                self.flush_stream(stream)
                self.send_close_error()
                self.end("failed", status="IBV_WC_WR_FLUSH_ERR", message="a stream has ended")
            else:
                self.fail(status, "a stream has ended", work)
            return
        was_first = not self.told_established and stream.opened_here
        stream.state = "resetting"
        self.drop_request(stream)
        self.flush_stream(stream, work, status)
        self.ask("STREAM_RESET", lambda packet: self.has_been_reset(stream),
                 lambda: self.fail("IBV_WC_RETRY_EXC_ERR", "STREAM_RESET stays unanswered"),
                 stream=stream.number, code=code, msn=msn)
        self.event("stream_ended", stream=stream.number, status=status or "IBV_WC_WR_FLUSH_ERR")
        self.drop_unsent(stream)
        if was_first:
            self.fail("IBV_WC_RETRY_EXC_ERR", "a first stream has ended")

    def drop_request(self, stream):
        """What was asked about a stream that ends is not asked any more."""
        request = getattr(stream, "request", None)
        if request is not None:
            self.requests.pop(request, None)
        if stream.asking is not None:
            self.requests.pop(stream.asking, None)
            stream.asking = None

    def has_been_reset(self, stream):
        """The stream has been reset for this side: packets of it are acknowledged and not placed from now on."""
        if stream.state == "reset":
            return
        stream.state = "reset"
        stream.reset_at = self.now
        self.reads_out = {w for w in self.reads_out if w.stream is not stream}
        self.atomics_out = {w for w in self.atomics_out if w.stream is not stream}
        self.free_refused(stream)

    def on_stream_reset_ack(self, packet, plane, now):
        request = self.take_answer(packet, "STREAM_RESET")
        if request is not None and packet.stream == request.fields["stream"]:
            del self.requests[request.txid]
            request.on_answer(packet)

    def on_stream_reset(self, packet, plane, now):
        if not self.agreed("reset"):
            self.counters["silence"] += 1
            return
        if self.repeated(packet, "STREAM_RESET_ACK", plane):
            return
        number = packet.stream
        before = self.reset_answers.get(number)
        if before is None or ahead(packet.psn, before[0]) > 0:
            self.reset_answers[number] = (packet.psn, now)
        self.remember(packet, "STREAM_RESET_ACK", plane, stream=number)
        stream = self.streams.get(number)
        if stream is None or stream.state in ("reset", "void"):
            return
        was = stream.state
        first = was == "opening" and not self.told_established
        stream.state = "resetting"
        if was != "resetting":
            self.drop_request(stream)
            self.flush_stream(stream)
            self.event("stream_ended", stream=number, status="IBV_WC_WR_FLUSH_ERR")
            self.drop_unsent(stream)
        self.has_been_reset(stream)
        if first:
            self.fail("IBV_WC_RETRY_EXC_ERR", "a first stream has ended")

    def stream_over(self, stream, state):
        """A stream that is refused, or ends with its connection."""
        told = stream.state in ("open", "opening")
        stream.state = state
        self.drop_request(stream)
        self.drop_unsent(stream)
        if told and state == "void" and not self.over:
            self.event("stream_ended", stream=stream.number, status="IBV_WC_WR_FLUSH_ERR")

    # Receives and credit.

    def post_recv(self, stream, receive):
        if stream.state not in ("open", "opening"):
            self.complete(stream, receive, "recv", "IBV_WC_WR_FLUSH_ERR", 0)
            return
        stream.post(receive)
        self.credit_may_tell(stream)

    def credit_may_tell(self, stream):
        """A peer whose credit was used up hears of new receives without asking (RCV-005)."""
        if stream.state == "open" and stream.reported is not None \
                and ahead(stream.used_rqsn, stream.reported, 16) >= 0 \
                and ahead(stream.limit(), stream.reported, 16) > 0:
            stream.tell = True

    def post_srq_recv(self, receive):
        self.srq.append(receive)
        self.grant()

    def grant(self):
        """Promises receives of the shared queue that are promised to nobody to the streams with the fewest (RCV-016)."""
        if not self.settings.srq:
            return
        streams = [s for s in self.streams.values() if s.state in ("open", "opening") and s.granted < 32767]
        promised = sum(s.granted - s.bound for s in self.streams.values())
        for _ in range(len(self.srq) - promised):
            if not streams:
                break
            stream = min(streams, key=lambda s: (s.granted - s.bound, s.number))
            stream.granted += 1
            self.credit_may_tell(stream)

    def withdraw_srq(self, wr_id):
        """Takes the latest receive of the shared queue with this number back. Returns whether there was one."""
        for at in range(len(self.srq) - 1, -1, -1):
            if self.srq[at].wr_id == wr_id:
                del self.srq[at]
                return True
        return False

    def report_limit(self, stream):
        """RqLimit for a packet that leaves now: never before one that was reported (STRM-031)."""
        if stream.state in ("open", "opening"):
            limit = stream.limit()
            if stream.reported is None or ahead(limit, stream.reported, 16) > 0:
                stream.reported = limit
        return stream.reported or 0

    def on_rq_credit(self, packet, plane, now):
        stream = self.streams.get(packet.stream)
        if stream is None or stream.state == "void":
            self.counters["silence"] += 1
            return
        if packet.kind == wire.ASK:
            self.send(Packet(wire.OPCODE["RQ_CREDIT"], psn=packet.psn, stream=stream.number, kind=wire.TELL,
                             rq_limit=self.report_limit(stream)), plane)
            return
        self.take_credit(stream, packet)
        if stream.asking == packet.psn:
            self.requests.pop(packet.psn, None)
            self.credit_answer(stream)

    def take_credit(self, stream, packet):
        """The RqLimit of the packet with the latest timestamp counts (STRM-047)."""
        if stream.state not in ("open", "opening"):
            return
        if stream.credit_timestamp is not None:
            later = ahead(packet.timestamp, stream.credit_timestamp)
            stale = (self.now - stream.credit_time) // self.peer_ts_unit >= 1 << 30
            if not stale and (later < 0 or later == 0 and ahead(packet.rq_limit, stream.credit, 16) < 0):
                return
        stream.credit = packet.rq_limit
        stream.credit_timestamp, stream.credit_time = packet.timestamp, self.now

    def credit_answer(self, stream):
        """An answer to RQ_CREDIT has come, or none will: without credit it is asked again after a pause."""
        stream.asking = None
        work = self.waiting_for_credit(stream)
        if work is None:
            return
        stream.ask_at = self.now + self.settings.rnr_pause
        if self.settings.rnr_retries < 7:
            if work.credit_asks >= self.settings.rnr_retries:
                self.rnr_exhausted(work)
                return
            work.credit_asks += 1

    def rnr_exhausted(self, work):
        """The RNR retries are used up (RCV-007, RCV-018)."""
        code = wire.RNR if work.rnr else 0
        self.reset_stream(work.stream, code, work.msn if code else 0, work, "IBV_WC_RNR_RETRY_EXC_ERR")

    def waiting_for_credit(self, stream):
        """The work that has its turn and waits for a receive of the peer."""
        if stream.state != "open" or self.may_not_begin(stream) or stream.next_index >= len(stream.work):
            return None
        work = stream.work[stream.next_index]
        if work.consumes and not work.begun and work.status is None and not self.fails_here(work) \
                and not stream.has_credit(stream.next_rqsn):
            return work
        return None

    def stream_timers(self, now):
        for stream in list(self.streams.values()):
            if stream.tell and stream.state == "open":
                stream.tell = False
                self.send(Packet(wire.OPCODE["RQ_CREDIT"], psn=self.new_txid(), stream=stream.number, kind=wire.TELL,
                                 rq_limit=self.report_limit(stream)), self.live_plane())
            if stream.state == "open" and stream.asking is None and now >= stream.ask_at \
                    and self.waiting_for_credit(stream) is not None:
                stream.asking = self.ask(
                    "RQ_CREDIT", None, lambda s=stream: self.credit_answer(s),
                    stream=stream.number, kind=wire.ASK, rq_limit=0)
            if stream.state == "reset" and stream.psns == 0 and now >= stream.reset_at + self.settings.linger:
                del self.streams[stream.number]

    def stream_deadline(self):
        due = NEVER
        for stream in self.streams.values():
            if stream.state == "open":
                if stream.tell:
                    return 0
                if stream.asking is None and self.waiting_for_credit(stream) is not None:
                    due = min(due, stream.ask_at)
            elif stream.state == "reset" and stream.psns == 0:
                due = min(due, stream.reset_at + self.settings.linger)
        return due
