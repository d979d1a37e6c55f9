"""Acknowledgments and answers to probes that this side sends (chapters 6 and 7)."""

from . import wire
from .codec import Packet
from .recvpath import NOT_ECT
from .serial import ahead
from .settings import NEVER

OPS = wire.OPCODE


class Acks:
    def ack_deadline(self):
        return min(p.due for p in self.recv_paths)

    def next_ack(self, now):
        """The acknowledgment that is due, as a datagram."""
        for path in self.recv_paths:
            if path.due <= now:
                return self.datagram(path.plane, self.ack_port(path), self.acknowledgment(path, now), now, NOT_ECT)
        return None

    def ack_port(self, path):
        """Acknowledgments of a path leave from one port until a duplicate shows that it may be dead (PATH-017)."""
        return self.ports[(path.number + path.port_turn) % len(self.ports)]

    def acknowledgment(self, path, now):
        """Reports everything that has arrived on a path; the trigger is the latest arrival."""
        timestamp, when, rtx, stream_number = path.trigger
        delay = int(now - when) // 64
        stream = self.streams.get(stream_number)
        epoch, hint = self.hint_to_send()
        packet = Packet(
            OPS["ACK_SACK"] if path.bits else OPS["ACK"], dcid=self.peer_cid, path=path.number, epoch=path.epoch,
            psn=path.cum, flags=wire.RTXE if rtx else 0, timestamp_echo=timestamp,
            ack_delay=delay if delay <= 65534 else 0xFFFF,
            ack_flags=wire.ECHO_VALID | (wire.DUPLICATE_SEEN if path.duplicate_seen else 0)
            | (wire.OUT_OF_WINDOW_SEEN if path.outside_seen else 0),
            ce_count=path.ce, ect_count=path.ect, hint_epoch=epoch, rate_hint=hint, stream=stream_number,
            rq_limit=self.report_limit(stream) if stream is not None else 0, sack=path.vector())
        path.acknowledged()
        return packet

    def on_path_probe(self, packet, plane, now):
        """Answers what has arrived, at once (REL-037)."""
        if packet.path >= len(self.recv_paths) or self.recv_paths[packet.path].epoch != packet.epoch:
            self.counters["silence"] += 1
            return
        path = self.recv_paths[packet.path]
        self.hint_asked(now)
        epoch, hint = self.hint_to_send()
        self.send(Packet(OPS["PATH_PROBE_ACK"], psn=packet.psn, path=path.number, epoch=path.epoch,
                         timestamp_echo=packet.timestamp, cum_psn=path.cum, highest_psn=packet.highest_psn,
                         hint_epoch=epoch, rate_hint=hint, sack=path.vector()), plane)

    def on_path_change(self, packet, plane, now):
        """A notice: nothing hangs on it (PATH-016)."""

    def on_path_retire(self, packet, plane, now):
        """Ends an epoch: its answer is final, and the next one is the current one (PATH-025 to PATH-028, PATH-034)."""
        if not self.agreed("retire") or packet.path >= len(self.recv_paths):
            self.counters["silence"] += 1
            return
        path = self.recv_paths[packet.path]
        if packet.epoch == path.epoch:
            path.retired = (path.epoch, path.cum, path.vector())
            path.epoch = (path.epoch + 1) & 15
            path.start_epoch((path.cum + 256) & 0xFFFFFFFF)
        elif path.retired is None or packet.epoch != path.retired[0]:
            self.counters["silence"] += 1
            return
        epoch, cum, sack = path.retired
        self.send(Packet(OPS["PATH_RETIRED"], psn=packet.psn, path=path.number, epoch=epoch, cum_psn=cum, sack=sack),
                  plane)
