"""Requests, their repetition and their answers; close and idle time (chapter 3)."""

from . import wire
from .codec import Packet
from .serial import add, ahead
from .settings import MS, NEVER, S


class Request:
    """A request that is repeated until it is answered (CONN-022 to CONN-024)."""

    def __init__(self, txid, opcode, fields, on_answer, on_silence, plane=None):
        self.txid, self.opcode, self.fields = txid, opcode, fields
        self.on_answer, self.on_silence = on_answer, on_silence
        self.sendings = 0
        self.due = NEVER   # set when the packet leaves
        self.plane = plane

    def left(self, now):
        self.due = now + (self.first_pause << (self.sendings - 1))


class Control:
    def start_control(self, now, txid):
        self.txid = txid
        self.requests = {}            # transaction id -> Request
        self.answered = {}            # (opcode, transaction id) -> (fields, time): STREAM_OPEN and STREAM_RESET
        self.last_heard = now
        self.idle_at = now + self.settings.idle
        self.idle_probes = 0
        self.idle_turn = 0
        self.close_reason = None      # the program wants an end
        self.close_first_sent = None
        self.close_sent = False
        self.peer_close = None        # (transaction id, reason, plane)
        self.forget_at = NEVER
        self.end_reason = None

    # Requests.

    def new_txid(self):
        self.txid = add(self.txid, 1)
        return self.txid

    def ask(self, opcode, on_answer, on_silence, **fields):
        request = Request(self.new_txid(), wire.OPCODE[opcode], fields, on_answer, on_silence, self.live_plane())
        request.first_pause = self.settings.control
        self.requests[request.txid] = request
        self.send_request(request)
        return request.txid

    def send_request(self, request):
        if request.sendings:
            request.plane = (request.plane + 1) % self.planes_agreed   # PLN-007
        request.sendings += 1
        request.due = NEVER
        packet = Packet(request.opcode, psn=request.txid, **request.fields)
        packet.request = request
        self.send(packet, request.plane)

    def take_answer(self, packet, opcode):
        """The request that this packet answers, or None (CONN-043)."""
        request = self.requests.get(packet.psn)
        if request is None or request.opcode != wire.OPCODE[opcode]:
            self.counters["silence"] += 1
            return None
        return request

    def control_timers(self, now):
        for request in list(self.requests.values()):
            if request.due <= now:
                if request.opcode == wire.OPCODE["CLOSE"] and self.close_first_sent is not None \
                        and now - max(self.last_heard, self.close_first_sent) >= 6 * S:
                    del self.requests[request.txid]
                    request.on_silence()   # CONN-050: it is taken as answered
                elif request.sendings > self.settings.repetitions:
                    del self.requests[request.txid]
                    request.on_silence()
                else:
                    self.send_request(request)
            if self.over:
                break
        if not self.over:
            self.idle_timer(now)
            for key, (_, when) in list(self.answered.items()):
                if when + self.settings.answer_time <= now:
                    del self.answered[key]

    def control_deadline(self):
        due = min((r.due for r in self.requests.values()), default=NEVER)
        return min(due, self.forget_at) if self.over else min(due, self.idle_at)

    # Idle time.

    def heard(self, now):
        """Something has come from the peer."""
        self.last_heard = now
        self.idle_at = now + self.settings.idle
        self.idle_probes = 0

    def idle_timer(self, now):
        if now < self.idle_at:
            return
        if self.idle_probes == 7:
            self.fail("IBV_WC_RETRY_EXC_ERR", "nothing comes from the peer any more")   # CONN-051
            return
        alive = [p for p in self.send_paths if p.alive and self.plane_ok(p.plane)]
        if alive:
            self.idle_turn += 1
            self.send_probe(alive[self.idle_turn % len(alive)])
        self.idle_at = now + (100 * MS << self.idle_probes)
        self.idle_probes += 1

    # Packets.

    def on_control(self, packet, plane, now):
        name = packet.name
        handler = getattr(self, "on_" + name.lower(), None)
        if handler is None or name in ("OPEN", "ACCEPT", "REJECT", "CONFIRM", "CONFIRM_ACK"):
            self.counters["silence"] += 1
            return
        handler(packet, plane, now)

    # Close.

    def close(self, reason=wire.DONE):
        """The program wants an end: CLOSE follows when all of its work is complete (CONN-047)."""
        if not self.over and self.close_reason is None:
            self.close_reason = reason
            self.state = "closing"
            self.settle(self.now)

    def abort(self):
        """Ends everything at once."""
        if not self.over:
            self.send_close_error()
            self.end("closed", reason=wire.ERROR)

    def settle(self, now):
        """Sends CLOSE or CLOSE_ACK when no work is left."""
        if self.over:
            return
        if self.peer_close is not None:
            if not self.work_left():
                txid, reason, plane = self.peer_close
                self.send(Packet(wire.OPCODE["CLOSE_ACK"], psn=txid, reason=reason), plane)
                self.end("closed", reason=reason)
        elif self.close_reason is not None and not self.close_sent and not self.work_left():
            self.close_sent = True
            self.send_close()

    def send_close(self):
        if self.close_first_sent is None:
            self.close_first_sent = self.now
        self.ask("CLOSE", self.on_close_answered, self.on_close_silence, reason=self.close_reason)

    def on_close_answered(self, packet):
        self.end("closed", reason=self.close_reason)

    def on_close_silence(self):
        if self.now - max(self.last_heard, self.close_first_sent) < 6 * S:
            self.send_close()
        else:
            self.end("closed", reason=self.close_reason)

    def on_close(self, packet, plane, now):
        if packet.reason == wire.ERROR:
            self.send(Packet(wire.OPCODE["CLOSE_ACK"], psn=packet.psn, reason=packet.reason), plane)
            self.end("closed", reason=packet.reason)
            return
        self.peer_close = (packet.psn, packet.reason, plane)   # the latest repetition is answered
        for stream in self.streams.values():
            stream.flush_unbegun = True

    def on_close_ack(self, packet, plane, now):
        request = self.take_answer(packet, "CLOSE")
        if request is not None and packet.reason == request.fields["reason"]:
            del self.requests[request.txid]
            request.on_answer(packet)

    def send_close_error(self):
        """CLOSE of reason ERROR; it is repeated while the connection rests."""
        request_id = self.ask("CLOSE", lambda packet: None, lambda: None, reason=wire.ERROR)
        self.error_close = request_id

    def fail(self, status, message, work=None):
        """The connection ends by an error: `work`, or else the oldest, gets the status (PATH-011)."""
        if self.over:
            return
        if work is None:
            work = self.oldest_work()
        if work is not None and work.status is None:
            self.flush_stream(work.stream, work, status)
        self.send_close_error()
        self.end("failed", status=status, message=message)

    def end(self, state, **event):
        """The connection is over: flushes everything and rests for the linger time (CONN-029)."""
        self.state = state
        for number in sorted(self.streams):
            stream = self.streams[number]
            if stream.state not in ("reset", "void"):
                self.flush_stream(stream)
                self.stream_over(stream, "void" if stream.state == "opening" else "ended")
        for txid in list(self.requests):
            if txid != getattr(self, "error_close", None):
                del self.requests[txid]
        self.forget_at = self.now + self.settings.linger
        self.event(state, **event)

    def control_when_over(self, packet):
        """A connection that rests answers CLOSE, and hears the answer to its own."""
        if packet.opcode == wire.OPCODE["CLOSE"]:
            self.send(Packet(wire.OPCODE["CLOSE_ACK"], psn=packet.psn, reason=packet.reason))
        elif packet.opcode == wire.OPCODE["CLOSE_ACK"]:
            self.requests.pop(packet.psn, None)
        else:
            self.counters["silence"] += 1

    # Answers that are remembered.

    def repeated(self, packet, opcode, plane):
        """Answers a repetition of STREAM_OPEN or STREAM_RESET as before (CONN-025, CONN-055)."""
        found = self.answered.get((packet.opcode, packet.psn))
        if found is None:
            return False
        fields = dict(found[0])
        stream = self.streams.get(fields["stream"])
        if "rq_limit" in fields and fields["status"] == wire.STREAM_OK and stream is not None:
            fields["rq_limit"] = self.report_limit(stream)
        self.send(Packet(wire.OPCODE[opcode], psn=packet.psn, **fields), plane)
        return True

    def remember(self, packet, opcode, plane, **fields):
        self.answered[(packet.opcode, packet.psn)] = (fields, self.now)
        self.send(Packet(wire.OPCODE[opcode], psn=packet.psn, **fields), plane)
