"""The sending end of one path: PSNs, what is unacknowledged, RTT, timers, windows (chapters 5, 6, 12)."""

from collections import deque

from .serial import add, ahead
from .settings import NEVER


class Sent:
    """One PSN that is not acknowledged."""

    __slots__ = ("psn", "message", "index", "stream", "fill", "count", "refused", "first_order", "last_order",
                 "last_time", "lost", "gap_time", "grace_end", "held_until", "in_flight", "used_up", "se", "rnr_used",
                 "body")

    def __init__(self, psn, message, index, stream):
        self.psn, self.message, self.index, self.stream = psn, message, index, stream
        self.fill = False        # a FILL stands in its place now
        self.count = 0           # transmissions
        self.refused = 0         # of them refused with RNR
        self.first_order = self.last_order = 0
        self.last_time = 0
        self.lost = None         # "evidence", "timeout", or "first": the one that goes at once after a timeout
        self.gap_time = None     # when a gap was first reported for its latest transmission
        self.grace_end = 0       # until when that gap proves nothing
        self.held_until = 0      # a NAK has refused it; NEVER until its stream has been reset
        self.in_flight = False
        self.used_up = False     # a window was used up while it was in flight (CC-013)
        self.rnr_used = 0        # RNR retries

    @property
    def counted(self):
        """Transmissions, those that were refused with RNR not counted."""
        return self.count - self.refused


class SendPath:
    """State of a path of the sending direction. What it decides is in the modules of the connection."""

    def __init__(self, number, isn, port, plane):
        self.number, self.port, self.plane = number, port, plane
        self.epoch = 0
        self.state = "open"      # open, retiring, retired, reviving, failed
        self.timeouts = self.probes = self.losses = self.marks = self.retransmissions = 0
        self.packets_sent = self.bytes_sent = 0
        self.retired_at = {}     # epoch number -> when it was retired
        self.final_cum = None
        self.revival_at = NEVER
        self.revival_pause = 0
        self.change_time = -NEVER
        self.heard_at = -NEVER   # latest acknowledgment or answer
        self.probes_out = {}     # transaction id -> (order, time, timestamp)
        self.timeouts_in_row = 0
        self.first_timeout_time = 0
        self.start_epoch(isn)

    def start_epoch(self, first_psn):
        """Everything that starts anew with an epoch."""
        self.first_psn = self.next_psn = first_psn
        self.cum = add(first_psn, -1)          # highest CumPSN reported
        self.unacked = {}                      # PSN -> Sent, in order of PSN
        self.window, self.alpha, self.start = 16.0, 1.0, True
        self.srtt = self.rttvar = None
        self.in_flight = 0
        self.order = 0                         # of the latest transmission of a data packet
        self.arrived_order = 0                 # the latest transmission that is reported as arrived
        self.times = {}                        # timestamp -> (order, time) of a transmission
        self.times_queue = deque()
        self.last_data = self.last_report = -NEVER
        self.probe_sent = False                # in this run of the timer
        self.has_lost = False                  # some of `unacked` may be lost
        self.timeouts_in_row = 0
        self.allowance = 0
        self.allowance_rise = -NEVER
        self.repaired = False                  # a packet was repaired because of a gap in this epoch
        self.heard = False                     # an acknowledgment or an answer has come
        self.last_new = -NEVER
        self.idle_since = None
        # ECN: what the acknowledgment whose counts were taken last has reported.
        self.ecn_off = False
        self.ack_cum, self.ack_bits = self.cum, 0
        self.ce_count = self.ect_count = 0
        self.route_psn = first_psn             # first PSN sent since the latest change of the route
        self.ce_time = -NEVER
        self.cut_time = -NEVER
        self.halve_time = -NEVER
        self.alpha_start = None
        self.alpha_new = self.alpha_marked = 0

    @property
    def alive(self):
        return self.state == "open"

    def sample(self, rtt):
        """A sample of RTT, in ns (chapter 1)."""
        if self.srtt is None:
            self.srtt, self.rttvar = rtt, rtt / 2
        else:
            self.rttvar = self.rttvar * 3 / 4 + abs(self.srtt - rtt) / 4
            self.srtt = self.srtt * 7 / 8 + rtt / 8

    def base_rto(self, settings, peer_ack_delay):
        """The retransmission timeout without its doublings, ns."""
        if self.srtt is None:
            return settings.rto_first
        probe = max(settings.probe_min, 2 * self.srtt + peer_ack_delay)
        rto = max(self.srtt + 4 * self.rttvar + peer_ack_delay, probe + self.srtt + peer_ack_delay)
        return min(max(rto, settings.rto_min), settings.rto_max)

    def rto(self, settings, peer_ack_delay):
        """The retransmission timeout in use, ns."""
        return min(self.base_rto(settings, peer_ack_delay) * (1 << self.timeouts_in_row), settings.rto_max)

    def probe_wait(self, settings, peer_ack_delay):
        if self.srtt is None:
            return max(settings.probe_min, self.rto(settings, peer_ack_delay) / 2)
        return max(settings.probe_min, 2 * self.srtt + peer_ack_delay)

    def srtt_or_half_rto(self, settings, peer_ack_delay):
        return self.srtt if self.srtt is not None else self.base_rto(settings, peer_ack_delay) / 2

    def timer_base(self):
        return max(self.last_data, self.last_report)

    def remember_time(self, timestamp, now):
        """Of several transmissions with one timestamp the first counts."""
        if timestamp not in self.times:
            self.times[timestamp] = (self.order, now)
            self.times_queue.append(timestamp)
            if len(self.times_queue) > 4096:
                self.times.pop(self.times_queue.popleft(), None)

    def highest_sent(self):
        return add(self.next_psn, -1)

    def outside(self):
        """Whether the next PSN would be more than 256 past CumPSN (REL-003)."""
        return ahead(self.next_psn, self.cum) > 256

    def leave_flight(self, sent):
        """A packet is no longer in flight; returns by how much that of the connection falls."""
        if not sent.in_flight:
            return 0
        sent.in_flight = False
        self.in_flight -= 1
        return 1
