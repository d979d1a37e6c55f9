"""Routes and epochs of a path: changes of the source port, grace, retirement and revival."""

from .. import wire


class Routes:
    """What one side decides about the paths of its direction."""

    def __init__(self, sender):
        self.s, self.judge, self.c, self.side = sender, sender.judge, sender.c, sender.side
        self.told = {}        # path -> (source port, NextPSN) of the latest PATH_CHANGE
        self.retiring = {}    # (path, epoch) -> transaction
        self.final = {}       # (path, epoch) -> final CumPSN
        self.missing, self.arrived = {}, {}
        self.moved = set()

    # --- the source port ----------------------------------------------------------------------------------------------

    def new_data(self, step, path, cbh):
        """A new packet goes out: on which route?"""
        port = step["source_port"]
        if path.new_port not in (None, port):
            path.changed_at, path.changed_order = self.judge.now, path.order - 1
            self.judge.exercised.add("PATH-012")
            if "CHANGE" in self.c.features:
                told = self.told.get(cbh["path"])
                self.judge.check("PATH-014", told is not None and told[0] == port)
                if told and told[0] == port:
                    self.judge.check("PATH-015", told[1] == cbh["psn"]) if not path.checked_next else None

    def wrong_epoch(self, step, cbh):
        """Data of an epoch that is not the current one: with another port that is a path begun anew."""
        old = self.s.outgoing.get((cbh["path"], 0))
        if old and old.new_port != step["source_port"] and (cbh["path"], 0) not in self.retiring:
            self.judge.check("PATH-012", False)

    def change_sent(self, step, fields):
        cbh, body = fields["CBH"], fields["PATH_CHANGE"]
        self.told[cbh["path"]] = body["source_port"], body["next_psn"]
        path = self.s.outgoing.get((cbh["path"], cbh["epoch"]))
        if path:
            path.checked_next = True
            self.judge.check("PATH-015", body["next_psn"] == path.next)

    def grace_end(self, path, psn):
        """Until when a gap at this PSN proves nothing."""
        if path.changed_at is None or path.sent[psn][-1][0] > path.changed_order:
            return None
        # The round trip is that of the time at which the gap was first reported.
        since, srtt = path.gap_since.get(psn, (None, None))
        srtt = srtt or 50_000_000
        return None if since is None else max(since + srtt // 4, path.changed_at + srtt * 9 // 8)

    # --- retirement ---------------------------------------------------------------------------------------------------

    def retire_sent(self, step, fields):
        cbh, body, check = fields["CBH"], fields["PATH_RETIRE"], self.judge.check
        key = cbh["path"], cbh["epoch"]
        path = self.s.outgoing.get(key)
        highest = (path.next - 1) % 2**32
        check("PATH-023", body["highest_psn"] == highest)
        if body["reason"] == 0:
            row = path.row_since if path.row_since is not None else self.judge.now
            check("PATH-021", self.timeouts(path) >= 3 and self.s.others_live(cbh, row))
        others = [k for k in self.s.outgoing if k[0] != key[0] and k not in self.retiring]
        check("PATH-022", bool(others))
        self.judge.exercised |= {"PATH-020", "PATH-024"}
        self.retiring[key] = cbh["psn"]
        path.frozen = True
        self.s.plan_timers(cbh, path)
        self.judge.void(lambda k: k[0] == "again" and k[1:5] == (self.c.number, self.side, *key))

    def timeouts(self, path):
        """Timeouts in a row, the one that has just passed included."""
        count = path.in_a_row
        idle = self.judge.now - max(path.last_moved, path.last_heard or 0)
        wait = 2 * path.timeout_wait if count else self.s.rto(path)
        return count + (idle >= wait)

    def retired_arrived(self, step, fields):
        cbh, body = fields["CBH"], fields["PATH_RETIRED"]
        key = cbh["path"], cbh["epoch"]
        if self.retiring.get(key) != cbh["psn"]:
            return
        path = self.s.outgoing[key]
        said = {(body["cum_psn"] + 1 + bit) % 2**32 for bit in wire.bits(body["sack"])}
        for psn in self.s.learn(path, body["cum_psn"], said):
            self.s.messages.reported(path.sent[psn][0][2])
        self.final[key] = body["cum_psn"]
        self.s.windows.retired(key)
        for psn, history in path.sent.items():
            step = history[0][2]
            if step["packet"] != "FILL" and not self.c.work[self.side].refusals.over(step["fields"]["MSGH"]["stream"]):
                place = self.place(step["fields"])
                (self.arrived if path.arrived(psn) else self.missing)[place] = step["fields"]

    @staticmethod
    def place(fields):
        msgh = fields["MSGH"]
        return msgh["stream"], bool(msgh["mflags"] & wire.RESP), msgh["msn"], msgh["offset"]

    def piece_again(self, known, fields):
        """A piece that was sent on another path goes out again under a new PSN."""
        check, key = self.judge.check, known[:2]
        if key not in self.retiring:
            check("REL-026", False)
            return
        if key not in self.final:
            self.moved.add(self.place(fields))
            check("PATH-030", False)
            check("REL-026", False)
            return
        check("PATH-030", True)
        place = self.place(fields)
        if check("PATH-031", place in self.missing):
            self.moved.add(place)
            old = self.missing[place]
            same = all(old.get(layer) == fields.get(layer) for layer in fields.keys() | old.keys() if layer != "CBH")
            check("PATH-032", same and old["CBH"]["opcode"] == fields["CBH"]["opcode"])

    def next_epoch(self, cbh):
        """First PSN of an epoch that may begin, if it may."""
        before = cbh["path"], (cbh["epoch"] - 1) % 16
        return (self.final[before] + 257) % 2**32 if before in self.final else None

    def at_end(self):
        if self.missing:
            self.judge.check("PATH-031", self.missing.keys() <= self.moved)


class Epochs:
    """What the receiving side makes of epochs."""

    def __init__(self, receiver):
        self.r, self.judge = receiver, receiver.judge
        self.retired = {}     # (path, epoch) -> body of the answer
        self.final = {}       # (path, epoch) -> final CumPSN by what has arrived

    def retire_arrived(self, step, fields):
        cbh = fields["CBH"]
        clause = "PATH-027" if (cbh["path"], cbh["epoch"]) in self.retired else "PATH-025"
        self.judge.due(clause, ("answer", self.r.c.number, self.r.side, "PATH_RETIRED", cbh["psn"]), self.judge.now + 1_000_000)

    def retired_sent(self, step, fields):
        cbh, body, check = fields["CBH"], fields["PATH_RETIRED"], self.judge.check
        key = cbh["path"], cbh["epoch"]
        if key in self.retired:
            check("PATH-027", self.retired[key] == body)
            return
        path = self.r.path(cbh)
        said = {(body["cum_psn"] + 1 + bit) % 2**32 for bit in wire.bits(body["sack"])}
        check("PATH-026", body["cum_psn"] == path.cum and said == path.beyond)
        self.retired[key], self.final[key] = body, path.cum

    def next_epoch(self, cbh):
        before = cbh["path"], (cbh["epoch"] - 1) % 16
        return (self.final[before] + 257) % 2**32 if before in self.final else None
