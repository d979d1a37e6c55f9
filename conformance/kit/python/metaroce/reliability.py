"""Acknowledgments that come, and how losses are found and repaired (chapter 6)."""

from . import wire
from .codec import Packet
from .serial import add, ahead
from .settings import MS, NEVER

OPS = wire.OPCODE


def reported(cum, bits, psn):
    """Whether CumPSN and vector (bit i in place i) report a PSN as arrived."""
    by = ahead(psn, cum)
    return by <= 0 or by <= 256 and bool(bits >> (by - 1) & 1)


def vector_bits(sack):
    """A vector as a number whose bit i stands for CumPSN + 1 + i."""
    number = int.from_bytes(sack, "big")
    return int(f"{number:0256b}"[::-1], 2) if number else 0


class Reliability:
    def on_ack(self, packet, now):
        path = self.path_of_report(packet.path, packet.epoch)
        bits = vector_bits(packet.sack) if packet.opcode == OPS["ACK_SACK"] else 0
        cum = packet.psn
        if path is None or self.reports_the_future(path, cum, bits):
            self.counters["ignored"] += 1
            return
        self.take_hint(packet, now)
        stream = self.streams.get(packet.stream)
        if stream is not None:
            self.take_credit(stream, packet)
        if path.state == "retiring":
            self.take_report(path, cum, bits, None, now)
            return
        path.heard = True
        path.last_report = now
        path.probe_sent = False
        path.timeouts_in_row = 0
        path.heard_at = now
        order = self.sample_rtt(path, packet, now) if packet.ack_flags & wire.ECHO_VALID else None
        newly = self.take_report(path, cum, bits, order, now)
        if packet.ack_flags & wire.DUPLICATE_SEEN and path.repaired:
            self.raise_allowance(path, now)
        self.after_ack(path, packet, cum, bits, newly, now)
        self.look_for_losses(path, now)

    def path_of_report(self, number, epoch):
        """The path that a report is about, if it is the epoch in use (REL-046)."""
        if number >= len(self.send_paths):
            return None
        path = self.send_paths[number]
        if epoch != path.epoch or path.state not in ("open", "retiring"):
            return None
        return path

    def reports_the_future(self, path, cum, bits):
        """REL-044."""
        return ahead(add(cum, bits.bit_length()), path.highest_sent()) > 0

    def sample_rtt(self, path, packet, now):
        """Takes a sample of RTT, and returns the order of the trigger's transmission."""
        sent = path.times.get(packet.timestamp_echo)
        if sent is None:
            return None
        order, when = sent
        if packet.ack_delay != 0xFFFF:
            rtt = now - when - packet.ack_delay * 64
            if rtt > 0:   # REL-059
                path.sample(rtt)
        return order

    def take_report(self, path, cum, bits, trigger, now):
        """Takes packets as acknowledged; `trigger` is the order of the transmission that is echoed. Returns them."""
        newly = [s for s in path.unacked.values() if reported(cum, bits, s.psn)]
        arrived = path.arrived_order
        for sent in newly:
            # Every packet but the trigger counts as its first transmission (REL-054).
            arrived = max(arrived, sent.first_order)
            self.packet_acked(path, sent)
        if trigger is not None:
            arrived = max(arrived, trigger)
        path.arrived_order = arrived
        if ahead(cum, path.cum) > 0:
            path.cum = cum
        if not path.in_flight and path.idle_since is None:
            path.idle_since = now
        return newly

    def raise_allowance(self, path, now):
        """The network reorders by itself: a gap has to last longer before it proves a loss (chapter 5)."""
        if path.srtt is None:
            return
        if now - path.allowance_rise > 16 * path.srtt:
            path.allowance = 0
        path.allowance = min(path.allowance + path.srtt / 4, path.srtt)
        path.allowance_rise = now

    def current_allowance(self, path, now):
        if path.srtt is None or now - path.allowance_rise > 16 * path.srtt:
            return 0
        return path.allowance

    def look_for_losses(self, path, now):
        """Finds gaps, and takes those that count as evidence."""
        found = False
        for sent in list(path.unacked.values()):
            if sent.lost in ("evidence", "first") or sent.last_order >= path.arrived_order:
                continue
            if sent.gap_time is None:
                sent.gap_time = now
                sent.grace_end = 0
                if sent.last_time < path.change_time:
                    srtt = path.srtt_or_half_rto(self.settings, self.peer_ack_delay)
                    sent.grace_end = max(now + srtt / 4, path.change_time + srtt * 9 / 8)
            if now >= self.evidence_time(path, sent, now):
                self.declare_lost(path, sent, "evidence", now)
                path.repaired = True
                found = True
        if found:
            self.on_evidence(path, now)

    def evidence_time(self, path, sent, now):
        return max(sent.gap_time + self.current_allowance(path, now), sent.grace_end)

    def declare_lost(self, path, sent, how, now):
        if sent.lost is None:
            path.losses += 1
        sent.lost = how
        path.has_lost = True
        self.in_flight -= path.leave_flight(sent)
        if not path.in_flight and path.idle_since is None:
            path.idle_since = now

    # Repair.

    def repair_time(self, path, sent):
        """When a lost packet may go again: at once, or for the ninth time and later after a timeout (REL-060)."""
        due = sent.held_until
        if sent.counted >= 8 and sent.lost != "first":
            due = max(due, sent.last_time + path.rto(self.settings, self.peer_ack_delay))
        return due

    def next_repair(self, now):
        """The next retransmission that is due."""
        for path in self.send_paths:
            if not path.alive or not path.has_lost:
                continue
            path.has_lost = any(s.lost for s in path.unacked.values())
            for sent in list(path.unacked.values()):
                if sent.lost is None or self.repair_time(path, sent) > now:
                    continue
                if sent.lost == "timeout" and path.in_flight >= path.window:
                    continue   # REL-056
                if sent.counted >= 64:
                    self.path_failed(path, now)   # REL-052
                    if self.over:
                        return None
                    break
                return self.transmit(path, sent, now)
        return None

    # Probes.

    def send_probe(self, path):
        """Asks what has arrived on a path."""
        packet = Packet(OPS["PATH_PROBE"], psn=self.new_txid(), path=path.number, epoch=path.epoch,
                        highest_psn=path.highest_sent())
        packet.probe = path
        path.probes += 1
        self.send(packet, path.plane, path.port)
        return packet.psn

    def on_path_probe_ack(self, packet, plane, now):
        if packet.path >= len(self.send_paths):
            self.counters["silence"] += 1
            return
        path = self.send_paths[packet.path]
        if path.state == "reviving" and self.revival_answer(path, packet, now):
            return
        probe = path.probes_out.get(packet.psn)
        bits = vector_bits(packet.sack)
        if probe is None or packet.epoch != path.epoch or path.state not in ("open", "retiring") \
                or packet.timestamp_echo != probe[2] or self.reports_the_future(path, packet.cum_psn, bits):
            self.counters["ignored"] += 1
            return
        self.take_hint(packet, now)
        if path.state == "retiring":
            self.take_report(path, packet.cum_psn, bits, None, now)
            return
        del path.probes_out[packet.psn]
        order, when, _ = probe
        for txid in [t for t, (_, w, _) in path.probes_out.items() if now - w > 10 * self.settings.rto_max]:
            del path.probes_out[txid]
        self.plane_answered(path, packet.psn)
        path.heard = True
        path.last_report = now
        path.probe_sent = False
        path.timeouts_in_row = 0
        path.heard_at = now
        if now > when:
            path.sample(now - when)
        self.hint_probe_answered(packet.psn)
        self.take_report(path, packet.cum_psn, bits, None, now)
        srtt = path.srtt_or_half_rto(self.settings, self.peer_ack_delay)
        late_enough = when > path.change_time + srtt * 9 / 8
        found = False
        for sent in path.unacked.values():
            if sent.last_order <= order and sent.lost not in ("evidence", "first") \
                    and (sent.last_time >= path.change_time or late_enough):
                self.declare_lost(path, sent, "evidence", now)
                found = True
        if found:
            self.on_evidence(path, now)
        self.look_for_losses(path, now)

    # Timers.

    def reliability_timers(self, now):
        for path in self.send_paths:
            if not path.alive:
                continue
            waiting = [s for s in path.unacked.values() if s.held_until <= now]
            for sent in path.unacked.values():
                if sent.held_until and sent.held_until <= now and sent.lost is None and not sent.in_flight:
                    path.has_lost = True
                    sent.lost = "evidence"   # the wait after a NAK RNR is over
            if not waiting:
                continue
            self.look_for_losses(path, now)
            base = path.timer_base()
            if not path.probe_sent and now >= base + path.probe_wait(self.settings, self.peer_ack_delay):
                path.probe_sent = True
                self.send_probe(path)
            if now >= base + path.rto(self.settings, self.peer_ack_delay):
                self.timeout(path, now)
                if self.over:
                    return

    def timeout(self, path, now):
        """Neither acknowledgment nor answer has come: all that is unacknowledged is taken for lost (REL-042)."""
        if path.timeouts_in_row == 0:
            path.first_timeout_time = now
        path.timeouts += 1
        others = [p for p in self.send_paths if p is not path and p.alive]
        path.timeouts_in_row += 1
        heard = any(p.heard_at >= path.first_timeout_time for p in others)
        if path.timeouts_in_row >= 7 or path.timeouts_in_row >= 3 and heard and self.agreed("retire"):
            self.path_failed(path, now)
            return
        self.window_timeout(path)
        first = True
        for sent in path.unacked.values():
            if sent.held_until > now:
                continue
            if sent.lost is None:
                self.declare_lost(path, sent, "timeout", now)
            if first:
                sent.lost = "first"   # goes at once; the others wait for the window
                first = False
        path.last_report = max(path.last_report, now)   # the run of the timer starts anew even if nothing can be sent
        if self.agreed("retire") and others and not heard:
            self.ask_another(path, others)
        self.leave_route(path, now)

    def ask_another(self, path, others):
        """An answer from elsewhere tells whether this path alone is silent (PATH-044)."""
        idle = [p for p in others if not p.unacked and self.plane_ok(p.plane)]
        elsewhere = [p for p in idle if p.plane != path.plane] or idle
        if elsewhere:
            turn = (path.timeouts_in_row - 1) % len(elsewhere)
            self.send_probe(elsewhere[turn])

    def reliability_deadline(self, now):
        due = NEVER
        for path in self.send_paths:
            if not path.alive or not path.unacked:
                continue
            active = False
            for sent in path.unacked.values():
                if sent.held_until > now:
                    due = min(due, sent.held_until)
                    continue
                active = True
                if sent.lost is not None:
                    at = self.repair_time(path, sent)
                    if at > now:
                        due = min(due, at)
                elif sent.gap_time is not None:
                    due = min(due, self.evidence_time(path, sent, now))
            if active:
                base = path.timer_base()
                if not path.probe_sent:
                    due = min(due, base + path.probe_wait(self.settings, self.peer_ack_delay))
                due = min(due, base + path.rto(self.settings, self.peer_ack_delay))
        return due
