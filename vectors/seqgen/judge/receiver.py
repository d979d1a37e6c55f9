"""The receiving side of one direction: what has arrived, what its acknowledgments must say, and when they are due."""

from .. import wire
from .routes import Epochs

EACH_PACKETS = 8
EACH_BYTES = 16384


class Incoming:
    """One path as its receiver sees it."""

    def __init__(self, isn):
        self.cum = (isn - 1) % 2**32
        self.beyond = set()
        self.ce = self.ect = 0
        self.ce_last = False  # the time before the first arrival counts as not marked
        self.trigger = self.trigger_at = None
        self.packets = self.bytes = 0
        self.duplicate = self.outside = False
        self.sent_cum = self.sent_counts = None
        self.sent_beyond = set()
        self.refused = set()
        self.epoch = 0
        self.port = self.from_port = None

    def has(self, psn):
        return wire.ahead(psn, self.cum) <= 0 or psn in self.beyond

    @staticmethod
    def reported(psn, cum, said):
        return wire.ahead(psn, cum) <= 0 or psn in said

    def take(self, psn):
        """Takes a first arrival; tells whether it opens a gap."""
        top = max((wire.ahead(p, self.cum) for p in self.beyond), default=0)
        opens = wire.ahead(psn, self.cum) > top + 1
        wrapped = False
        self.beyond.add(psn)
        while (self.cum + 1) % 2**32 in self.beyond:
            wrapped |= self.cum == 0xFFFFFFFF
            self.cum = (self.cum + 1) % 2**32
            self.beyond.discard(self.cum)
        return opens, wrapped


class Receiver:
    """Side `side` as a receiver of data."""

    def __init__(self, connection, side):
        self.c, self.judge, self.side, self.peer = connection, connection.judge, side, wire.other(side)
        self.own = connection.given[side]
        self.incoming, self.wrapped = {}, set()
        self.epochs = Epochs(self)
        self.ports = {}

    def path(self, cbh):
        key = cbh["path"], cbh["epoch"]
        if key not in self.incoming and cbh["epoch"] == 0 and cbh["path"] < self.c.paths:
            self.incoming[key] = Incoming(self.c.given[self.peer]["isn"])
        elif key not in self.incoming and (start := self.epochs.next_epoch(cbh)) is not None:
            self.incoming[key] = Incoming(start)
            self.incoming[key].epoch = cbh["epoch"]
        return self.incoming.get(key)

    def event(self, kind, values):
        pass

    # --- data arrives -------------------------------------------------------------------------------------------------

    def data_arrived(self, step, marked):
        cbh, now, due = step["fields"]["CBH"], self.judge.now, self.judge.due
        path, key = self.path(cbh), ("ack", self.c.number, self.side, cbh["path"], cbh["epoch"])
        if self.own["hint_support"]:
            self.judge.hints.arrived(self.c.number, step)
        if path is None:
            return
        if key[3:] in self.epochs.retired:
            self.c.work[self.side].duplicate(step, "PATH-028")
            return
        psn, msgh = cbh["psn"], step["fields"]["MSGH"]
        if wire.ahead(psn, path.cum) > 256:
            path.outside = True
            return
        if path.from_port not in (None, step["source_port"]):
            due("PATH-007", key, now + self.own["ack_delay_us"] * 1000)
            if "CHANGE" in self.c.features:
                due("PATH-016", key, now + self.own["ack_delay_us"] * 1000)
        path.from_port = step["source_port"]
        first = not path.has(psn)
        if first and not self.c.work[self.side].admits(step):
            path.refused.add(psn)
            self.c.work[self.side].not_placed(step)
            return
        path.trigger, path.trigger_at = step, now
        if not first:
            path.duplicate = True
            due("REL-018", key, now)
            self.c.work[self.side].duplicate(step)
            return
        due("REL-019", key, now + self.own["ack_delay_us"] * 1000)
        if msgh["stream"] in self.c.control.asked_streams[self.side]:
            due("STRM-046", key, now + self.own["ack_delay_us"] * 1000)
        self.c.work[self.side].placed(step)
        if self.c.work[self.side].overtakes(msgh):
            due("STRM-023", key, now + self.own["ack_delay_us"] * 1000)
        path.refused.discard(psn)
        if msgh["stream"] in self.c.work[self.side].refusals.reset_got:
            self.judge.due("ERR-012", key, now + self.own["ack_delay_us"] * 1000)
        if step["packet"] == "FILL":
            due("ERR-015", key, now + self.own["ack_delay_us"] * 1000)
        if self.c.work[self.side].other_streams_wait(msgh["stream"]):
            due("STRM-044", key, now + self.own["ack_delay_us"] * 1000)
        self.c.work[self.side].refusals.settled((cbh["path"], cbh["epoch"], psn))
        opens, wrapped = path.take(psn)
        if wrapped:
            self.wrapped.add((cbh["path"], cbh["epoch"]))
        path.ce, path.ect = path.ce + marked, path.ect + (not marked and step["ecn"] in ("ect0", "ect1"))
        if cbh["flags"] & wire.AR:
            due("REL-014", key, now)
        if msgh["mflags"] & wire.EOM:
            due("REL-015", key, now)
        if opens:
            due("REL-017", key, now)
        if path.ce_last != marked:
            due("ECN-009", key, now)
        path.ce_last = marked
        path.packets += 1
        path.bytes += len(step["fields"].get("payload", {}).get("payload", "")) // 2
        if path.packets == EACH_PACKETS:
            due("REL-016", key, now)
        if path.bytes >= EACH_BYTES:
            due("REL-047", key, now)

    def probe_arrived(self, step):
        cbh = step["fields"]["CBH"]
        self.judge.due("REL-037", ("probe", self.c.number, self.side, cbh["psn"]), self.judge.now)

    # --- acknowledgments ----------------------------------------------------------------------------------------------

    def ack_sent(self, step):
        fields, check = step["fields"], self.judge.check
        cbh, ack = fields["CBH"], fields["ACK"]
        path = self.path(cbh)
        if (cbh["path"], cbh["epoch"]) in self.epochs.retired:
            check("PATH-029", False)
            check("PATH-008", False)
            return
        if path is None or path.trigger is None:
            check("REL-007", False)
            return
        self.judge.met(("ack", self.c.number, self.side, cbh["path"], cbh["epoch"]))
        said = self.reports(path, cbh["psn"], fields.get("ACK_SACK", {}).get("sack"), "REL-007", "REL-008", "REL-013",
                            (cbh["path"], cbh["epoch"]))
        if step["packet"] == "ACK" and path.beyond:
            check("REL-012", False)
        elif path.beyond:
            check("REL-012", True)
        self.against_earlier(path, cbh["psn"], said)
        if any(path.reported(psn, cbh["psn"], said) for psn in path.refused):
            return  # what a refused packet was taken for shows in all that follows
        trigger = path.trigger["fields"]
        check("REL-022", ack["timestamp_echo"] == trigger["CBH"]["timestamp"])
        if ack["ack_delay"] != 0xFFFF:
            check("REL-023", ack["ack_delay"] * 64 <= self.judge.now - path.trigger_at)
        check("REL-024", bool(cbh["flags"] & wire.RTXE) == bool(trigger["CBH"]["flags"] & wire.RTX))
        check("REL-025", ack["stream"] == trigger["MSGH"]["stream"])
        flags = ack["ack_flags"]
        if path.duplicate:
            check("REL-020", bool(flags & wire.DUPLICATE_SEEN))
        else:
            check("REL-021", not flags & wire.DUPLICATE_SEEN)
        if path.outside:
            check("REL-005", bool(flags & wire.OUT_OF_WINDOW_SEEN))
        self.counts(path, ack, trigger)
        self.c.work[self.side].limit_told(ack["stream"], ack["rq_limit"])
        self.c.control.hint_told(self.side, ack)
        if path.duplicate and path.port:
            check("PATH-017", step["source_port"] != path.port)
        path.port = step["source_port"]
        path.duplicate = path.outside = False
        path.packets = path.bytes = 0

    def reports(self, path, cum, sack, too_far, too_much, too_little, key):
        """Compares CumPSN and vector with what has arrived; gives the PSNs said to have arrived beyond CumPSN."""
        check = self.judge.check
        claimed = wire.ahead(cum, path.cum)
        said = {(cum + 1 + bit) % 2**32 for bit in wire.bits(sack or "0")}
        codes = self.c.work[self.side].refusals.codes(*key)
        for psn in path.refused:
            clause = "RCV-011" if codes.get(psn) == 2 else "STRM-033"
            check(clause, not path.reported(psn, cum, said))
        truthful = all(path.has((path.cum + 1 + n) % 2**32) for n in range(max(0, claimed)))
        check(too_far, truthful)
        if said or too_much == too_far:
            check(too_much, all(path.has(psn) for psn in said) and truthful)
        if key in self.wrapped:
            check("CONV-005", claimed >= 0 or cum != 0xFFFFFFFF)
        missing = {psn for psn in path.beyond if wire.ahead(psn, cum) > 0 and psn not in said}
        missing |= {(cum + 1 + n) % 2**32 for n in range(-claimed) if (cum + 1 + n) % 2**32 not in said}
        check(too_little, not missing)
        return said

    def against_earlier(self, path, cum, said):
        check = self.judge.check
        if path.sent_cum is not None:
            check("REL-009", wire.ahead(cum, path.sent_cum) >= 0)
            if path.sent_beyond and wire.ahead(cum, path.sent_cum) >= 0:
                check("REL-010", all(wire.ahead(psn, cum) <= 0 or psn in said for psn in path.sent_beyond))
        path.sent_cum = cum if path.sent_cum is None or wire.ahead(cum, path.sent_cum) > 0 else path.sent_cum
        path.sent_beyond = {psn for psn in path.sent_beyond | said if wire.ahead(psn, path.sent_cum) > 0}

    def counts(self, path, ack, trigger):
        check, said = self.judge.check, (ack["ce_count"], ack["ect_count"])
        low = path.sent_counts is not None and (said[0] < path.sent_counts[0] or said[1] < path.sent_counts[1])
        if path.sent_counts is not None:
            check("ECN-008", not low)
        path.sent_counts = said
        if path.duplicate:
            check("ECN-005", said[0] + said[1] <= path.ce + path.ect)
        if said[0] + said[1] > path.ce + path.ect and path.duplicate:
            return
        if trigger["CBH"]["flags"] & wire.RTX and not path.duplicate:
            check("ECN-006", sum(said) >= path.ce + path.ect)
            if sum(said) < path.ce + path.ect:
                return
        if path.epoch:
            check("PATH-034", said == (path.ce, path.ect))
        check("ECN-003", said[0] == path.ce)
        check("ECN-004", said[1] == path.ect)

    def probe_ack_sent(self, step):
        fields = step["fields"]
        cbh, body = fields["CBH"], fields["PATH_PROBE_ACK"]
        path = self.path(cbh)
        asked = self.c.control.requests.get((self.peer, "PATH_PROBE", cbh["psn"]))
        echoes = asked is not None and (
            (asked["CBH"]["path"], asked["CBH"]["epoch"], asked["CBH"]["timestamp"], asked["PATH_PROBE"]["highest_psn"])
            == (cbh["path"], cbh["epoch"], body["timestamp_echo"], body["highest_psn"])
        )
        self.judge.check("REL-037", echoes)
        if cbh["epoch"] and path is not None:
            self.judge.check("PATH-037", path.trigger is not None or body["cum_psn"] == path.cum)
        self.judge.met(("probe", self.c.number, self.side, cbh["psn"]))
        self.c.control.hint_told(self.side, body)
        if path is not None:
            self.reports(path, body["cum_psn"], body["sack"], "REL-038", "REL-038", "REL-039", (cbh["path"], cbh["epoch"]))

    def nak_sent(self, step):
        fields = step["fields"]
        nak = fields["NAK"]
        self.judge.check("PKT-016", fields["CBH"]["psn"] == 0)
        self.c.work[self.side].refusals.nak_sent(step, nak)
