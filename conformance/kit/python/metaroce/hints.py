"""Rate hints: obeying those of the peer, and giving own ones (chapter 13)."""

from . import wire
from .codec import Packet
from .serial import ahead
from .settings import MS, NEVER

BURST_PACKETS = 8   # half of what HINT-008 grants


class Hints:
    def start_hints(self):
        self.hint = wire.NO_LIMIT       # of the peer
        self.hint_stamp = None          # (timestamp, hint epoch) of the packet that it came with
        self.hint_time = 0              # when that packet came
        self.hint_bytes = 0.0           # that may be sent now
        self.hint_bytes_time = 0
        self.hint_probe_at = NEVER
        self.hint_probe_pause = 0
        self.hint_unanswered = 0
        self.hint_probes = {}           # transaction id -> time
        self.hint_turn = 0
        self.hint_giver = self.settings.hint_giver

    # Obeying.

    def take_hint(self, packet, now):
        """The hint of the packet with the latest timestamp counts (HINT-010)."""
        if not self.peer["hint_support"]:
            return   # HINT-016
        if self.hint_stamp is not None:
            timestamp, epoch = self.hint_stamp
            later = ahead(packet.timestamp, timestamp)
            stale = (now - self.hint_time) // self.peer_ts_unit >= 1 << 30
            if not stale and (later < 0 or later == 0 and ahead(packet.hint_epoch, epoch, 8) < 0):
                return
        self.hint_stamp, self.hint_time = (packet.timestamp, packet.hint_epoch), now
        self.set_hint(packet.rate_hint, now)

    def set_hint(self, hint, now):
        if hint == self.hint:
            return
        self.hint_refill(now)
        if self.hint == wire.NO_LIMIT:
            self.hint_bytes, self.hint_bytes_time = 0.0, now
        self.hint = hint
        if hint == 0:
            rtt = self.smallest_rtt()
            self.hint_probe_at, self.hint_probe_pause, self.hint_unanswered = now + rtt, 2 * rtt, 0
        else:
            self.hint_probe_at = NEVER
            self.hint_probes.clear()

    def smallest_rtt(self):
        rtts = [p.srtt for p in self.send_paths if p.alive and p.srtt is not None]
        alive = [p for p in self.send_paths if p.alive] or self.send_paths
        return min(rtts) if rtts else alive[0].rto(self.settings, self.peer_ack_delay) / 2

    def hint_refill(self, now):
        if self.hint not in (0, wire.NO_LIMIT):
            depth = BURST_PACKETS * self.ip_size(self.payload_size)
            self.hint_bytes = min(depth, self.hint_bytes + (now - self.hint_bytes_time) * self.hint / 8000)
        self.hint_bytes_time = now

    def hint_allows(self, size, now):
        """Whether the hint lets a new packet go now (HINT-008, HINT-011)."""
        if self.hint == wire.NO_LIMIT:
            return True
        if self.hint == 0:
            return False
        self.hint_refill(now)
        return self.hint_bytes >= size

    def hint_spent(self, size, now):
        if self.hint != wire.NO_LIMIT:
            self.hint_refill(now)
            self.hint_bytes -= size

    def hint_ready(self, now):
        """When the hint lets a full packet go."""
        if self.hint in (0, wire.NO_LIMIT):
            return NEVER
        missing = self.ip_size(self.payload_size) - self.hint_bytes
        return self.hint_bytes_time + missing * 8000 / self.hint if missing > 0 else NEVER

    def send_hint(self):
        """A hint that has changed, by itself (HINT-007)."""
        epoch, rate = self.hint_to_send()
        self.send(Packet(wire.OPCODE["RATE_HINT"], psn=self.new_txid(), hint_epoch=epoch, rate_hint=rate),
                  self.live_plane())

    def hint_timers(self, now):
        if self.hint_giver:
            self.hint_giver.tick(self, now)
        if self.hint == 0 and now >= self.hint_probe_at:
            if not self.wants_to_send():
                self.hint_probe_at = NEVER
            else:
                rtt = self.smallest_rtt()
                lost = [t for t, when in self.hint_probes.items()
                        if now - when >= self.send_paths[0].rto(self.settings, self.peer_ack_delay)]
                for txid in lost:
                    del self.hint_probes[txid]
                    self.hint_unanswered += 1
                if self.hint_unanswered >= 4:
                    self.hint_lapses(now)   # HINT-014
                    return
                alive = [p for p in self.send_paths if p.alive and self.plane_ok(p.plane)]
                if alive:
                    self.hint_turn += 1
                    self.hint_probes[self.send_probe(alive[self.hint_turn % len(alive)])] = now
                self.hint_probe_at = now + self.hint_probe_pause
                self.hint_probe_pause = min(2 * self.hint_probe_pause, max(MS, rtt))
        elif self.hint == 0 and self.hint_probe_at == NEVER and self.wants_to_send():
            self.hint_probe_at = now
        elif self.hint not in (0, wire.NO_LIMIT) and now >= self.hint_life():
            self.hint_lapses(now)   # HINT-019

    def hint_life(self):
        rtos = [p.rto(self.settings, self.peer_ack_delay) for p in self.send_paths if p.alive]
        return self.hint_time + 4 * max(rtos, default=self.settings.rto_max)

    def hint_lapses(self, now):
        self.hint_stamp = None
        self.set_hint(wire.NO_LIMIT, now)

    def hint_probe_answered(self, txid):
        if txid in self.hint_probes:
            self.hint_probes.clear()
            self.hint_unanswered = 0

    def wants_to_send(self):
        return bool(self.moved) or any(self.next_piece(s) is not None for s in self.streams.values())

    def hint_deadline(self, now):
        due = self.hint_giver.deadline(self) if self.hint_giver else NEVER
        if self.hint == 0:
            wants = self.hint_probe_at == NEVER and self.wants_to_send()
            due = min(due, now if wants else self.hint_probe_at)
        elif self.hint != wire.NO_LIMIT:
            due = min(due, self.hint_life())
        return due

    def on_rate_hint(self, packet, plane, now):
        self.take_hint(packet, now)

    # Giving.

    def hint_to_send(self):
        """(hint epoch, rate) for a packet that leaves now (HINT-001, PKT-012)."""
        return self.hint_giver.current(self) if self.hint_giver else (0, wire.NO_LIMIT)

    def hint_arrival(self, size, now):
        if self.hint_giver:
            self.hint_giver.arrival(self, size, now)

    def hint_asked(self, now):
        if self.hint_giver:
            self.hint_giver.asked(self, now)
