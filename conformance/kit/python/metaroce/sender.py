"""What is sent next: work becomes packets, packets get paths; completions of work (chapters 4, 5 and 8)."""

from collections import deque

from . import wire
from .codec import Packet
from .recvpath import ECT0
from .sendpath import Sent
from .serial import add, ahead
from .settings import NEVER

OPS = wire.OPCODE
SUCCESS, FLUSHED = "IBV_WC_SUCCESS", "IBV_WC_WR_FLUSH_ERR"


class Sender:
    def start_sender(self):
        self.moved = deque()          # (message, index): packets of retired paths that go elsewhere
        self.stream_turn = 0
        self.path_turn = 0
        self.path_run = 0
        self.reads_out = set()        # Reads under way
        self.atomics_out = set()
        self.waiting = {}             # (stream, MSN) -> Read or atomic work whose response has not come

    # Posting.

    def post(self, work):
        """Takes a work request; it is flushed at once where its stream has ended (VERB-007)."""
        stream = work.stream
        if self.over or stream.state not in ("open", "opening"):
            self.complete(stream, work, work.kind, FLUSHED, work.length)
            return
        stream.work.append(work)
        self.progress(self.now)

    def work_left(self):
        """Whether any work is not complete."""
        return any(s.work for s in self.streams.values())

    def oldest_work(self):
        """The oldest that is not complete; first of that which has begun."""
        works = [w for s in self.streams.values() for w in s.work]
        begun = [w for w in works if w.begun]
        return min(begun or works, key=lambda w: w.serial, default=None)

    # Completion.

    def complete(self, stream, item, kind, status, length, **more):
        """Tells of a work request or receive. What succeeds without being signalled is silent (VERB-006)."""
        if status == SUCCESS and not getattr(item, "signalled", True):
            return
        self.event("completion", stream=stream.number, wr_id=item.wr_id, kind=kind, status=status, byte_len=length,
                   **more)

    def complete_work(self):
        """Completes what is done, in the order in which it was posted (STRM-028)."""
        for stream in list(self.streams.values()):
            work_queue = stream.work
            while work_queue:
                work = work_queue[0]
                if work.status is None and not work.begun and stream.next_index == 0:
                    if stream.flush_unbegun:
                        work.status = FLUSHED
                    else:
                        bad = self.fails_here(work) if stream.state == "open" else None
                        if bad:
                            self.reset_stream(stream, 0, 0, work, bad)
                            break
                if work.status is None and work.begun and work.all_acked and work.answered:
                    work.status = SUCCESS
                    self.counters["messages_sent"] += 1
                if work.status is None:
                    break
                work_queue.popleft()
                stream.next_index = max(0, stream.next_index - 1)
                self.complete(stream, work, work.kind, work.status, work.length)
            if self.over:
                break

    def fails_here(self, work):
        """The status of work that cannot be sent, or None (chapter 16)."""
        opcode = work.opcode
        depth = None
        if opcode == OPS["READ_REQ"]:
            depth = self.peer["read_depth"]
        elif opcode in wire.ATOMICS:
            depth = self.peer["atomic_depth"]
        if depth == 0 or opcode in (OPS["SEND_IMM"], OPS["WRITE_IMM"]) and not self.agreed("imm") \
                or opcode == OPS["SEND_INV"] and not self.agreed("inv") or opcode in wire.ATOMICS and work.va & 7 \
                or opcode not in wire.SENDS and work.va + work.length >= 1 << 64:
            return "IBV_WC_LOC_QP_OP_ERR"
        if work.local is not None and work.length and not work.local[0].registered:
            return "IBV_WC_LOC_PROT_ERR"
        return None

    def flush_stream(self, stream, cause=None, status=None):
        """Completes all work of a stream, `cause` with `status` and the rest flushed, then its receives."""
        while stream.work:
            work = stream.work.popleft()
            work.status = status if work is cause else FLUSHED
            if cause is None and work.failed_here:
                work.status, cause = work.failed_here, work
            self.complete(stream, work, work.kind, work.status, work.length)
        stream.next_index = 0
        for key in [k for k in self.waiting if k[0] == stream.number]:
            del self.waiting[key]
        self.flush_receives(stream)

    def drop_unsent(self, stream):
        """Nothing of a stream that is over begins any more; responses that were not sent are dropped."""
        stream.responses.clear()
        self.moved = deque(item for item in self.moved if item[0].stream is not stream)

    # Choosing.

    def may_not_begin(self, stream):
        """No request begins after a CLOSE has been sent or received (CONN-027, CONN-049)."""
        return self.close_sent or self.peer_close is not None or stream.flush_unbegun

    def next_piece(self, stream):
        """(message, index) of the next packet of a stream that may be sent, or None."""
        if stream.state != "open":
            return None
        if stream.responses:
            response = stream.responses[0]
            return response, response.sent
        if stream.next_index >= len(stream.work):
            return None
        work = stream.work[stream.next_index]
        if work.begun:
            return work, work.sent
        if self.may_not_begin(stream) or work.status is not None or self.fails_here(work):
            return None
        if work.consumes and not stream.has_credit(stream.next_rqsn):
            return None
        lowest = next((w.msn for w in stream.work if w.begun and not w.all_acked), None)
        if lowest is not None and ahead(stream.next_msn, lowest, 24) >= self.msg_window:
            return None
        if work.fence and any(not w.answered for w in list(stream.work)[:stream.next_index]):
            return None
        if work.kind == "read" and len(self.reads_out) >= self.peer["read_depth"]:
            return None
        if work.wants_response and work.kind != "read" and len(self.atomics_out) >= self.peer["atomic_depth"]:
            return None
        return work, 0

    def begin(self, work):
        """Numbers a message with its first packet (STRM-006, STRM-007)."""
        stream = work.stream
        work.begun = True
        work.msn = stream.next_msn
        stream.next_msn = add(stream.next_msn, 1, 24)
        work.rqsn = 0
        if work.consumes:
            work.rqsn = stream.next_rqsn
            stream.next_rqsn = add(stream.next_rqsn, 1, 16)
        if work.inline is not None:
            work.data = work.inline
        elif work.opcode in wire.SENDS + wire.WRITES and work.length:
            region, offset = work.local
            work.data = bytes(memoryview(region.data)[offset:offset + work.length])
        work.cut(self.payload_size)
        if work.wants_response:
            self.waiting[(stream.number, work.msn)] = work
            (self.reads_out if work.kind == "read" else self.atomics_out).add(work)

    def choose(self):
        """The next new packet of any stream: those that were moved first, then the streams in turn (STRM-045)."""
        if self.moved:
            return self.moved[0]
        numbers = list(self.streams)
        for step in range(len(numbers)):
            number = numbers[(self.stream_turn + step) % len(numbers)]
            piece = self.next_piece(self.streams[number])
            if piece is not None:
                self.stream_turn = (self.stream_turn + step + 1) % len(numbers)
                return piece
        return None

    def next_data(self, now, new=True):
        """A retransmission that is due, or else a new packet."""
        repair = self.next_repair(now)
        if repair is not None:
            return repair
        if not new or not self.any_room(now):
            return None
        piece = self.choose()
        if piece is None:
            return None
        size = self.ip_size(min(self.payload_size, max(0, piece[0].length - piece[1] * self.payload_size)))
        if not self.hint_allows(size, now):
            return None
        path = self.choose_path(now)
        if path is None:
            return None
        return self.send_new(path, *piece, now)

    def send_new(self, path, message, index, now):
        """Sends a packet for the first time on this path."""
        if self.moved and self.moved[0] == (message, index):
            self.moved.popleft()
        else:
            if not message.is_response and not message.begun:
                self.begin(message)
            message.sent = index + 1
            stream = message.stream
            if message.sent == message.total:
                if message.is_response:
                    stream.responses.popleft()
                    self.response_sent(message)
                else:
                    stream.next_index += 1
        sent = Sent(path.next_psn, message, index, message.stream)
        path.next_psn = add(path.next_psn, 1)
        path.unacked[sent.psn] = sent
        message.stream.psns += 1
        if not message.is_response and message.wants_response:
            message.place = (path.number, path.epoch, sent.psn)
        path.last_new = now
        return self.transmit(path, sent, now)

    def transmit(self, path, sent, now):
        """Sends a PSN, for the first time or again."""
        again = sent.count > 0
        if not sent.in_flight:
            sent.in_flight = True
            path.in_flight += 1
            self.in_flight += 1
        sent.count += 1
        path.order += 1
        sent.last_order = path.order
        if not again:
            sent.first_order = path.order
        sent.last_time = now
        sent.lost, sent.gap_time = None, None
        path.last_data = now
        path.probe_sent = False
        path.idle_since = None
        timestamp = self.timestamp(now)
        path.remember_time(timestamp, now)
        full = path.in_flight >= path.window or self.in_flight >= self.window
        if full:
            self.window_used_up(path)
        flags = wire.RTX if again else 0
        if full or path.outside():
            flags |= wire.AR
        packet = self.data_packet(path, sent, flags)
        self.counters["data_sent"] += 1
        path.packets_sent += 1
        path.retransmissions += again
        datagram = self.datagram(path.plane, path.port, packet, now, ECT0)
        path.bytes_sent += len(datagram[4])
        self.hint_spent(len(datagram[4]) + self.ip_overhead(), now)
        return datagram

    def data_packet(self, path, sent, flags):
        message, index = sent.message, sent.index
        stream = message.stream
        base = {"epoch": path.epoch, "path": path.number, "dcid": self.peer_cid, "psn": sent.psn}
        if stream.state in ("resetting", "reset") and sent.count > 1 or sent.fill:
            sent.fill = True   # ERR-013
            return Packet(OPS["FILL"], flags=flags, stream=stream.number, **base)
        offset = index * self.payload_size
        mflags = (wire.SOM if index == 0 else 0) | (wire.EOM if index == message.total - 1 else 0)
        if message.opcode in (OPS["SEND_IMM"], OPS["WRITE_IMM"]):
            mflags |= wire.IMM
        elif message.opcode == OPS["SEND_INV"]:
            mflags |= wire.INV
        elif message.is_response:
            mflags |= wire.RESP
        if message.solicited and mflags & wire.EOM:
            flags |= wire.SE
        packet = Packet(message.opcode, flags=flags, stream=stream.number, rqsn=message.rqsn, mflags=mflags,
                        msn=message.msn, offset=offset, len=message.length, **base)
        if message.data:
            packet.payload = message.data[offset:offset + self.payload_size]
        if message.is_response:
            packet.original = message.original
        else:
            packet.va, packet.rkey, packet.imm = message.va, message.rkey, message.imm
            packet.swap_or_add, packet.compare = message.swap_or_add, message.compare
        return packet

    # What an acknowledgment does to messages.

    def packet_acked(self, path, sent):
        """A PSN has been reported as arrived."""
        del path.unacked[sent.psn]
        self.in_flight -= path.leave_flight(sent)
        sent.stream.psns -= 1
        message = sent.message
        if sent.fill:
            return
        message.acked += 1
        if not message.is_response and message.all_acked and message.answered:
            self.reads_out.discard(message)
            self.atomics_out.discard(message)

    def response_complete(self, work):
        """All of the response to a Read or an atomic request has come."""
        work.answered = True
        self.waiting.pop((work.stream.number, work.msn), None)
        if work.all_acked:
            self.reads_out.discard(work)
            self.atomics_out.discard(work)

    def ip_overhead(self):
        """UDP and IP headers, bytes."""
        return 48 if ":" in self.own_addresses[0] else 28

    def ip_size(self, payload):
        """About as many bytes as the IP packet of a piece takes."""
        return payload + 16 + 16 + 16 + 4 + self.ip_overhead()
