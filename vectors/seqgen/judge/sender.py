"""The sending side of one direction: numbering, repair, probes and timeouts."""

from .. import wire
from .congestion import Windows
from .messages import Messages
from .routes import Routes

LEAST_RTO = 10_000_000
MOST_RTO = 2_000_000_000
FIRST_RTO = 100_000_000
LEAST_PROBE = 2_000_000
REACTION = 1_000_000
# A packet that has been transmitted so often waits for the timeout before each further time.
OFTEN = 8


class Outgoing:
    """One path as its sender knows it."""

    def __init__(self, key, isn):
        self.key, self.next, self.isn = key, isn, isn
        self.cum = (isn - 1) % 2**32
        self.reported = set()
        self.sent = {}        # PSN -> list of (order, timestamp, step)
        self.sent_at = {}     # PSN -> time of its latest transmission
        self.order = 0
        self.known = 0        # order of the latest transmission that is reported as arrived
        self.answered = 0     # transmissions up to this one that are not reported are lost: a probe was answered
        self.probes = {}      # transaction -> order at the time of the probe
        self.last_heard = self.last_moved = None
        self.ever_heard = self.cum_heard = False
        self.changing_to = self.timed_port = None
        self.probed = False
        self.srtt = self.rttvar = None
        self.port = self.new_port = None
        self.timeout_at = self.timeout_wait = None
        self.frozen = self.checked_next = False
        self.in_a_row, self.row_since = 0, None
        self.changed_at = None
        self.changed_order = 0
        self.gap_since = {}

    def arrived(self, psn):
        return wire.ahead(psn, self.cum) <= 0 or psn in self.reported

    def open(self):
        return [psn for psn in self.sent if not self.arrived(psn)]


class Sender:
    """Side `side` as a sender of data."""

    def __init__(self, connection, side):
        self.c, self.judge, self.side, self.peer = connection, connection.judge, side, wire.other(side)
        self.own, self.other = connection.given[side], connection.given[wire.other(side)]
        self.outgoing = {}
        self.messages, self.routes, self.windows = Messages(self), Routes(self), Windows(self)
        self.total = 0

    def path(self, cbh):
        key = cbh["path"], cbh["epoch"]
        if key not in self.outgoing and cbh["epoch"] == 0 and cbh["path"] < self.c.paths:
            self.outgoing[key] = Outgoing(key, self.own["isn"])
        elif key not in self.outgoing and (start := self.routes.next_epoch(cbh)) is not None:
            self.outgoing[key] = Outgoing(key, start)
        return self.outgoing.get(key)

    def event(self, kind, values):
        self.messages.event(kind, values)
        if kind == "port_change":
            path = self.outgoing.get((values["path"], 0))
            if path:
                path.changing_to = values["source_port"]
        elif kind == "end":
            self.routes.at_end()

    # --- data ---------------------------------------------------------------------------------------------------------

    def data_sent(self, step):
        fields, check = step["fields"], self.judge.check
        cbh = fields["CBH"]
        check("ECN-001", step["ecn"] == "ect0")
        path = self.path(cbh)
        if not self.exists(step, cbh, path):
            return
        psn = cbh["psn"]
        again = psn in path.sent
        self.check_port(step, path)
        path.order += 1
        if again:
            self.again(step, path, psn)
        else:
            self.new(step, path, psn)
        path.sent_at[psn] = self.judge.now
        path.sent.setdefault(psn, []).append((path.order, cbh["timestamp"], step))
        path.last_moved = self.judge.now
        path.probed = False
        self.c.work[self.side].refusals.data_sent(step, again)
        self.messages.data_sent(step, again)
        self.c.work[self.side].operations.request_sent(step, again)
        if not again:
            self.judge.hints.data_sent(self.c.number, step)
        else:
            self.judge.hints.data_again(self.c.number, step)
        self.plan_timers(cbh, path)

    def exists(self, step, cbh, path):
        if path is not None and path.frozen:
            return self.judge.check("PATH-024", False)
        if not self.judge.check("PATH-001", path is not None):
            self.routes.wrong_epoch(step, cbh)
            return False
        return True

    def new(self, step, path, psn):
        check, cbh = self.judge.check, step["fields"]["CBH"]
        self.windows.new_packet((cbh["path"], cbh["epoch"]), path)
        self.c.planes.new_packet(self.side, path)
        if cbh["epoch"]:
            check("PATH-036", path.ever_heard)
        if not path.sent:
            check("PATH-033" if cbh["epoch"] else "REL-001", psn == path.isn)
        elif path.next == 0:
            check("CONV-004", psn == 0)
        else:
            check("REL-002", psn == path.next)
        path.next = (psn + 1) % 2**32
        distance = wire.ahead(psn, path.cum)
        if distance > 16:
            check("REL-003", distance <= 256)
        check("REL-029", not cbh["flags"] & wire.RTX)
        if not path.cum_heard:
            check("PATH-010", len(path.sent) < 16)
        used = {p.new_port for k, p in self.outgoing.items() if p is not path and p.new_port and k[0] != cbh["path"]}
        if used:
            check("PATH-002", step["source_port"] not in used)
        self.routes.new_data(step, path, cbh)
        path.new_port = step["source_port"]
        self.total += 1
        if self.c.paths > 1 and self.total == 16 * self.c.paths:
            check("PATH-005", len({k[0] for k, p in self.outgoing.items() if p.sent}) == self.c.paths)

    def again(self, step, path, psn):
        check, now = self.judge.check, self.judge.now
        cbh, history = step["fields"]["CBH"], path.sent[psn]
        key = self.key(cbh, psn)
        check("REL-026", True)
        if step["packet"] != "FILL":
            check("REL-027", self.covered(step) == self.covered(history[0][2]))
        check("REL-028", bool(cbh["flags"] & wire.RTX))
        before = path.new_port
        if step["source_port"] == path.changing_to:
            path.new_port = path.changing_to
        check("PATH-003", step["source_port"] == path.new_port)
        self.judge.met(key)
        if not check("REL-030", not path.arrived(psn)):
            return
        latest = history[-1][0]
        idle = now - max(path.last_moved, path.last_heard or 0)
        first = len(history) == 1
        if len(history) >= OFTEN:
            check("REL-060", now - path.sent_at[psn] >= self.wait(path))
        grace = self.routes.grace_end(path, psn)
        wait = self.c.work[self.side].refusals.may_go_again(cbh, psn)
        if wait and not check("RCV-012", now >= wait):
            return
        if self.lost(path, latest) and grace is not None and not check("PATH-013", now >= grace):
            check("REL-032" if first else "REL-033", False)
        elif self.lost(path, latest):
            check("REL-032" if first else "REL-033", True)
        elif idle >= LEAST_RTO:
            check("REL-032" if first else "REL-033", True)
            check("REL-041", True)
            check("REL-057", idle >= self.wait(path))
            check("REL-035", path.probed)
            self.timed_out(cbh, path, idle)
            path.timed_port = before
            if step["source_port"] != before:
                self.check_port(step, path)
        elif idle > REACTION:
            check("REL-041", False)
            check("REL-057", False)
        else:
            check("REL-032" if first else "REL-033", False)

    def timed_out(self, cbh, path, idle):
        now = self.judge.now
        self.judge.met(("timer", self.c.number, self.side, cbh["path"], cbh["epoch"]))
        lowest = [psn for psn in path.open() if not self.c.work[self.side].refusals.held(cbh, psn)]
        self.judge.check("REL-042", cbh["psn"] == min(lowest, key=lambda psn: wire.ahead(psn, path.cum)))
        self.windows.timed_out(path.key)
        if path.timeout_at is not None and (path.last_heard or 0) < path.timeout_at:
            self.judge.check("REL-043", idle >= min(2 * path.timeout_wait, MOST_RTO))
            path.in_a_row += 1
        else:
            path.in_a_row, path.row_since = 1, now
        path.timeout_at, path.timeout_wait = now, idle

    def check_port(self, step, path):
        """The port is another one by the second packet that a path sends after a timeout."""
        if path.timed_port is not None:
            self.judge.check("PATH-019", step["source_port"] != path.timed_port)
            path.timed_port = None

    def others_live(self, cbh, since):
        """Whether another path has been acknowledged since a time."""
        return any((p.last_heard or 0) >= since for k, p in self.outgoing.items() if k[0] != cbh["path"])

    def lost(self, path, order):
        """Whether something sent after this transmission is known to have arrived, or a probe's answer lacks it."""
        return order < path.known or order <= path.answered

    @staticmethod
    def covered(step):
        """The bytes of a transmission that a retransmission has in common with it."""
        data = bytes.fromhex(step["datagram"])
        return data[:2] + bytes([data[2] & ~(wire.AR | wire.RTX)]) + data[3:12] + data[16:-4]

    def key(self, cbh, psn):
        return "again", self.c.number, self.side, cbh["path"], cbh["epoch"], psn

    # --- what comes back ----------------------------------------------------------------------------------------------

    def valid(self, path, cum, said, bit_zero):
        """Whether an acknowledgment may be believed."""
        if path is None:
            self.judge.exercised.add("REL-046")
            return False
        if bit_zero:
            self.judge.exercised.add("REL-045")
            return False
        top = wire.ahead(path.next, 1)
        if wire.ahead(cum, path.next) >= 0 or any(wire.ahead(psn, path.next) >= 0 for psn in said):
            self.judge.exercised.add("REL-044")
            return False
        return top is not None

    def learn(self, path, cum, said):
        """Takes in a report; gives the PSNs that are new in it."""
        fresh = [psn for psn in path.sent if not path.arrived(psn) and (wire.ahead(psn, cum) <= 0 or psn in said)]
        if wire.ahead(cum, path.cum) > 0:
            path.cum = cum
        path.reported |= said
        self.windows.newly(path.key, len(fresh))
        path.last_heard = self.judge.now
        path.ever_heard = path.cum_heard = True
        path.in_a_row = 0
        path.probed = False
        return fresh

    def ack_arrived(self, step):
        fields = step["fields"]
        cbh, ack = fields["CBH"], fields["ACK"]
        path = self.outgoing.get((cbh["path"], cbh["epoch"]))
        offsets = wire.bits(fields.get("ACK_SACK", {}).get("sack", "0"))
        said = {(cbh["psn"] + 1 + bit) % 2**32 for bit in offsets}
        if not self.valid(path, cbh["psn"], said, 0 in offsets):
            return
        self.c.work[self.side].limit_heard(ack["stream"], ack["rq_limit"])
        self.c.control.hint_heard(self.side, cbh, ack)
        fresh = self.learn(path, cbh["psn"], said)
        for psn in fresh:
            self.messages.reported(path.sent[psn][0][2])
        for psn, history in path.sent.items():
            if not path.arrived(psn):
                continue
            # The trigger is the transmission whose timestamp is echoed; all else counts as its first transmission.
            trigger = [order for order, stamp, _ in history if stamp == ack["timestamp_echo"]]
            if trigger or psn in fresh:
                path.known = max(path.known, (trigger or [history[0][0]])[0])
        if len(fresh) > 1:
            self.judge.exercised.add("REL-054")
        if ack["ack_flags"] & wire.ECHO_VALID and ack["ack_delay"] != 0xFFFF:
            self.sample(path, ack)
        if fresh and path.srtt is not None:
            self.windows.counted(path.key, path, ack["ce_count"])
        self.look_for_losses(cbh, path, None)
        self.plan_timers(cbh, path)

    def sample(self, path, ack):
        clock = (self.own["clock_ns"] + self.judge.now) // self.own["ts_unit_ns"]
        rtt = (clock - ack["timestamp_echo"]) % 2**32 * self.own["ts_unit_ns"] - ack["ack_delay"] * 64
        if path.srtt is None:
            path.srtt, path.rttvar = rtt, rtt // 2
        else:
            path.rttvar = (3 * path.rttvar + abs(path.srtt - rtt)) // 4
            path.srtt = (7 * path.srtt + rtt) // 8

    def look_for_losses(self, cbh, path, clause):
        for psn in path.open():
            if path.frozen or self.c.work[self.side].refusals.held(cbh, psn) or not self.lost(path, path.sent[psn][-1][0]):
                continue
            key, now = self.key(cbh, psn), self.judge.now
            path.gap_since.setdefault(psn, (now, path.srtt))
            if len(path.sent[psn]) >= OFTEN:
                continue
            if any(due[1] == key for due in self.judge.dues):
                continue
            self.judge.due(clause or ("REL-031" if len(path.sent[psn]) == 1 else "REL-034"), key, self.repair_by(path, psn, now))
        self.judge.void(lambda k: k[:5] == self.key(cbh, 0)[:5] and path.arrived(k[5]))

    def repair_by(self, path, psn, now):
        return max(now, self.routes.grace_end(path, psn) or now)

    # --- probes and timeouts ------------------------------------------------------------------------------------------

    def probe_due(self, path):
        if path.srtt is None:
            return FIRST_RTO // 2
        return max(LEAST_PROBE, 2 * path.srtt + self.other["ack_delay_us"] * 1000)

    def rto(self, path):
        if path.srtt is None:
            return FIRST_RTO
        delay = self.other["ack_delay_us"] * 1000
        least = max(path.srtt + 4 * path.rttvar + delay, self.probe_due(path) + path.srtt + delay)
        return min(max(least, LEAST_RTO), MOST_RTO)

    def wait(self, path):
        """The retransmission timeout in force: doubled after each timeout in a row."""
        in_a_row = path.timeout_at is not None and (path.last_heard or 0) < path.timeout_at
        return min(2 * path.timeout_wait, MOST_RTO) if in_a_row else self.rto(path)

    def plan_timers(self, cbh, path):
        key = "timer", self.c.number, self.side, cbh["path"], cbh["epoch"]
        probe = ("probe_out",) + key[1:]
        self.judge.void(lambda k: k in (key, probe))
        if not path.open() or path.frozen:
            return
        since = max(path.last_moved, path.last_heard or 0)
        if not path.probed:
            self.judge.due("REL-048", probe, since + self.probe_due(path))
        self.judge.due("REL-042", key, since + self.wait(path))

    def probe_sent(self, step):
        cbh, check = step["fields"]["CBH"], self.judge.check
        path = self.path(cbh)
        if path is None:
            return
        if path.sent:
            check("REL-036", step["fields"]["PATH_PROBE"]["highest_psn"] == (path.next - 1) % 2**32)
        if path.new_port:
            check("PATH-004", step["source_port"] == path.new_port)
        if path.open() and not self.judge.hints.paused(self.c.number, self.side):
            since = max(path.last_moved, path.last_heard or 0)
            check("REL-058", self.judge.now - since >= self.probe_due(path))
        self.judge.hints.probe_sent(self.c.number, self.side)
        path.probes[cbh["psn"]] = path.order
        path.probed = True
        self.judge.met(("probe_out", self.c.number, self.side, cbh["path"], cbh["epoch"]))

    def probe_ack_arrived(self, step):
        fields = step["fields"]
        cbh, body = fields["CBH"], fields["PATH_PROBE_ACK"]
        path = self.outgoing.get((cbh["path"], cbh["epoch"]))
        offsets = wire.bits(body["sack"])
        said = {(body["cum_psn"] + 1 + bit) % 2**32 for bit in offsets}
        if cbh["psn"] not in getattr(path, "probes", ()) or not self.valid(path, body["cum_psn"], said, 0 in offsets):
            return
        for psn in self.learn(path, body["cum_psn"], said):
            self.messages.reported(path.sent[psn][0][2])
        path.answered = max(path.answered, path.probes[cbh["psn"]])
        self.c.control.hint_heard(self.side, cbh, body)
        self.look_for_losses(cbh, path, "REL-040")
        self.plan_timers(cbh, path)
