"""The receiving end of one path: what has arrived, and when an acknowledgment is due (chapters 6 and 7)."""

from .serial import add, ahead
from .settings import NEVER

CE, ECT1, ECT0, NOT_ECT = 3, 1, 2, 0


class RecvPath:
    def __init__(self, number, isn):
        self.number = number
        self.epoch = 0
        self.retired = None      # (epoch, CumPSN, vector) that was answered last
        self.port_turn = 0       # which of the own ports acknowledgments leave from
        self.start_epoch(add(isn, -1))

    def start_epoch(self, cum):
        self.cum = cum
        self.bits = 0            # bit i stands for CumPSN + 1 + i
        self.ce = self.ect = 0
        self.last_marked = False
        self.highest = cum
        self.duplicate_seen = self.outside_seen = False
        self.trigger = None      # (timestamp, time, RTX, stream)
        self.plane = 0           # of the latest data packet
        self.packets = self.payload = 0   # since the last acknowledgment
        self.due = NEVER

    def has(self, psn):
        ahead_by = ahead(psn, self.cum)
        return ahead_by <= 0 or bool(ahead_by <= 256 and self.bits >> (ahead_by - 1) & 1)

    def vector(self):
        """The 32 bytes of the vector, bit 0 first."""
        return int(f"{self.bits & ((1 << 256) - 1):0256b}"[::-1], 2).to_bytes(32, "big") if self.bits else bytes(32)

    def take(self, psn, ecn):
        """A first arrival. Returns whether it opens a gap or changes the mark."""
        ahead_by = ahead(psn, self.cum)
        opens = ahead(psn, add(self.highest, 1)) > 0
        if ahead(psn, self.highest) > 0:
            self.highest = psn
        self.bits |= 1 << (ahead_by - 1)
        while self.bits & 1:
            self.bits >>= 1
            self.cum = add(self.cum, 1)
        marked = ecn == CE
        if marked:
            self.ce = add(self.ce, 1)
        elif ecn in (ECT0, ECT1):
            self.ect = add(self.ect, 1)
        changed = marked != self.last_marked
        self.last_marked = marked
        return opens or changed

    def arrived(self, now, at_once, ack_delay):
        """Sets when the acknowledgment is due."""
        self.due = now if at_once else min(self.due, now + ack_delay)

    def acknowledged(self):
        """An acknowledgment has been sent."""
        self.duplicate_seen = self.outside_seen = False
        self.packets = self.payload = 0
        self.due = NEVER
