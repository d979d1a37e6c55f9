"""NAKs: those that this side sends, and those that come (chapter 14)."""

from . import wire
from .codec import Packet
from .settings import MS, NEVER
from .stream import Refusal

OPS = wire.OPCODE

STATUS = {wire.REM_INV_REQ: "IBV_WC_REM_INV_REQ_ERR", wire.LENGTH: "IBV_WC_REM_INV_REQ_ERR",
          wire.REM_ACCESS: "IBV_WC_REM_ACCESS_ERR"}


class Refusals:
    def start_refusals(self):
        self.reads_held = self.atomics_held = 0

    # Refusing.

    def refuse_not_ready(self, packet, plane):
        """RNR: the packet is neither placed nor acknowledged, and comes again after the time named (RCV-009)."""
        self.send_nak(wire.RNR, wire.SCOPE_PACKET, packet.stream, packet.msn, packet.path, packet.epoch, packet.psn,
                      plane, self.settings.rnr_wait_us)

    def refuse(self, stream, response, code, packet, plane, now):
        """Refuses a message for good."""
        refusal = stream.refusals[(response, packet.msn)] = Refusal(code, packet, plane)
        self.nak_again(stream, refusal, now)
        if not response:
            self.deliver(stream)

    def refuse_again(self, stream, refusal, packet, plane, now):
        refusal.at(packet, plane)
        if now - refusal.last_nak >= 10 * MS:
            self.nak_again(stream, refusal, now)

    def nak_again(self, stream, refusal, now):
        scope = wire.SCOPE_STREAM if self.agreed("reset") else wire.SCOPE_CONNECTION
        self.send_nak(refusal.code, scope, stream.number, refusal.msn, refusal.path, refusal.epoch, refusal.psn,
                      refusal.plane, 0)
        refusal.last_nak = now
        refusal.next_nak = now + self.settings.nak_pause

    def send_nak(self, code, scope, stream, msn, path, epoch, psn, plane, detail):
        self.counters["naks_sent"] += 1
        self.send(Packet(OPS["NAK"], path=path, epoch=epoch, code=code, scope=scope, stream=stream, msn=msn,
                         offending_psn=psn, detail=detail), plane)

    def refusal_timers(self, now):
        """Repeats NAKs until the peer has ended stream or connection (ERR-004, ERR-028, ERR-032)."""
        for stream in list(self.streams.values()):
            for refusal in list(stream.refusals.values()):
                if now < refusal.next_nak:
                    continue
                if refusal.repetitions == 7:
                    if self.agreed("reset"):
                        self.reset_stream(stream)
                        break
                    self.send_close_error()
                    self.end("failed", status="IBV_WC_WR_FLUSH_ERR", message="a NAK stays without CLOSE")
                    return
                refusal.repetitions += 1
                refusal.plane = (refusal.plane + 1) % self.planes_agreed
                self.nak_again(stream, refusal, now)

    def refusal_deadline(self):
        return min((r.next_nak for s in self.streams.values() for r in s.refusals.values()), default=NEVER)

    # Being refused.

    def on_nak(self, packet, now):
        if packet.code in wire.NAK_HINTS:
            return   # ERR-022
        named = self.named_by(packet)
        if named is None:
            self.counters["ignored"] += 1   # ERR-007
            return
        path, sent, message = named
        if packet.code == wire.RNR:
            if packet.scope == wire.SCOPE_PACKET and sent is not None:
                self.not_ready(path, sent, packet.detail, now)
            return
        if packet.scope not in (wire.SCOPE_STREAM, wire.SCOPE_CONNECTION):
            return
        if sent is not None:
            self.in_flight -= path.leave_flight(sent)
            sent.lost, sent.held_until = None, NEVER
        status = STATUS.get(packet.code, "IBV_WC_REM_OP_ERR")
        work = None if message.is_response else message
        if work is not None and work.failed_here:
            status = work.failed_here
        stream = message.stream
        if packet.scope == wire.SCOPE_STREAM and self.agreed("reset"):
            if stream.state in ("open", "opening"):
                self.reset_stream(stream, packet.code, packet.msn, work, status)
            return
        if work is None:   # a response: what is left is flushed
            self.send_close_error()
            self.end("failed", status="IBV_WC_WR_FLUSH_ERR", message="a response was refused")
        else:
            self.fail(status, "the peer has refused a message", work)

    def named_by(self, packet):
        """(path, Sent or None, message) of the packet that a NAK names, or None."""
        if packet.path >= len(self.send_paths):
            return None
        path = self.send_paths[packet.path]
        if path.epoch == packet.epoch:
            sent = path.unacked.get(packet.offending_psn)
            if sent is not None:
                message = sent.message
                if not sent.fill and message.stream.number == packet.stream and message.msn == packet.msn:
                    return path, sent, message
                return None
        work = self.waiting.get((packet.stream, packet.msn))
        if work is not None and work.place == (packet.path, packet.epoch, packet.offending_psn):
            return path, None, work
        return None

    def not_ready(self, path, sent, wait_us, now):
        """RNR: waits, and repeats the packet when the time is over (RCV-012, RCV-013)."""
        if sent.lost is not None or not sent.in_flight and sent.held_until > now:
            return   # this transmission has been refused already
        message = sent.message
        if not message.is_response:
            message.rnr = True
            if self.settings.rnr_retries < 7 and sent.rnr_used >= self.settings.rnr_retries:
                self.rnr_exhausted(message)
                return
        sent.rnr_used += 1
        sent.refused += 1
        self.in_flight -= path.leave_flight(sent)
        sent.lost, sent.gap_time = None, None
        sent.held_until = now + min(max(wait_us, 10), 1_000_000) * 1000

    def free_refused(self, stream):
        """The stream has been reset: FILL goes at once under what a NAK has refused (ERR-033)."""
        for path in self.send_paths:
            for sent in path.unacked.values():
                if sent.stream is stream and sent.held_until == NEVER:
                    sent.held_until = 0
                    sent.lost, path.has_lost = "evidence", True
