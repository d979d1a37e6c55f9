"""Windows per path and for the connection: AIMD that follows ECN marks (chapter 12)."""

from . import wire
from .serial import add, ahead
from .settings import NEVER

FIRST_WINDOW, LARGEST_WINDOW, SMALLEST_WINDOW = 16.0, 256.0, 1 / 16


class Congestion:
    def start_congestion(self):
        self.in_flight = 0
        self.window = FIRST_WINDOW * len(self.send_paths)

    def window_sum(self):
        return sum(p.window for p in self.send_paths if p.alive)

    def bound_window(self):
        self.window = max(1.0, min(self.window, max(self.window_sum(), 1.0)))

    def window_used_up(self, path):
        """Windows grow only by packets that were in flight when one was used up (CC-013)."""
        if path.in_flight >= path.window:
            for sent in path.unacked.values():
                sent.used_up = sent.used_up or sent.in_flight
        if self.in_flight >= self.window:
            for other in self.send_paths:
                for sent in other.unacked.values():
                    sent.used_up = sent.used_up or sent.in_flight

    def after_ack(self, path, packet, cum, bits, newly, now):
        """Counts of marks, alpha, growth and cuts."""
        moved = ahead(cum, path.ack_cum)
        if moved >= 0:
            relative = ((1 << moved) - 1) | bits << moved
        else:
            relative = bits >> -moved
        fresh = relative & ~path.ack_bits
        if not fresh:
            return   # it does not advance: its counts are passed over
        count = fresh.bit_count()
        lowest_new = add(path.ack_cum, (fresh & -fresh).bit_length())
        ce = add(packet.ce_count, -path.ce_count)
        ect = add(packet.ect_count, -path.ect_count)
        known = (path.ack_bits | relative)
        path.ack_cum, path.ack_bits = (cum, known >> moved) if moved >= 0 else (path.ack_cum, known)
        path.ce_count, path.ect_count = packet.ce_count, packet.ect_count
        if ce > count:
            ce = 0   # ECN-014
        if ahead(lowest_new, path.route_psn) >= 0 and ce + ect < count and not path.ecn_off:
            path.ecn_off = True   # ECN-012
        path.marks += ce
        srtt = path.srtt
        if srtt is not None:
            if path.alpha_start is None:
                path.alpha_start = now
            path.alpha_new += count
            path.alpha_marked += ce
            if now - path.alpha_start >= srtt:
                path.alpha = path.alpha * 15 / 16 + path.alpha_marked / path.alpha_new / 16
                path.alpha_start, path.alpha_new, path.alpha_marked = now, 0, 0
        if ce:
            path.start = False
            path.ce_time = now
            if now - path.cut_time >= (srtt or 0):
                path.cut_time = now
                self.cut(path, path.window * (1 - path.alpha / 2))
            return
        grown = sum(s.used_up for s in newly)
        for _ in range(grown):
            if path.start:
                path.window += 1
                self.window += 1
            else:
                path.window += 1 / max(self.window_sum(), 1)
                self.window += 1 / max(self.window, 1)
            path.window = min(path.window, LARGEST_WINDOW)
        self.bound_window()

    def cut(self, path, window):
        """Lowers the window of a path, and that of the connection by as much (CC-008)."""
        window = max(window, SMALLEST_WINDOW)
        if window < path.window:
            self.window = max(1.0, self.window - (path.window - window))
            path.window = window
        self.bound_window()

    def window_timeout(self, path):
        """CC-009."""
        path.start = False
        self.cut(path, min(path.window, 1.0))

    def on_evidence(self, path, now):
        """A gap counts as evidence: without ECN it is the only sign of congestion (CC-010)."""
        if path.ecn_off and now - path.halve_time >= (path.srtt or 0):
            path.halve_time = now
            path.start = False
            self.cut(path, path.window / 2)

    def lower_idle_windows(self, now):
        """After a pause the network may have changed (CC-014)."""
        for path in self.send_paths:
            if path.idle_since is not None and path.window > FIRST_WINDOW and not path.in_flight \
                    and now - path.idle_since >= path.rto(self.settings, self.peer_ack_delay):
                path.window = FIRST_WINDOW
                self.window = min(self.window, FIRST_WINDOW * len(self.send_paths))
        self.bound_window()

    def drop_window(self, path):
        """A path that is retired takes its window out of that of the connection."""
        self.window = max(1.0, self.window - path.window)
        self.bound_window()

    def add_window(self, path):
        """A path that is opened again brings its first window."""
        self.window += FIRST_WINDOW
        self.bound_window()
