"""Messages of a sending side: how they are numbered, cut, and what they may contain."""

from .. import wire


class Messages:
    """What one side has sent of each message."""

    def __init__(self, sender):
        self.s, self.judge = sender, sender.judge
        self.pieces = {}      # (stream, resp, msn) -> {offset: (path, epoch, psn)}
        self.heads = {}       # (stream, resp, msn) -> what every packet of it repeats
        self.arrived = {}     # (stream, resp, msn) -> offsets reported
        self.last = {}        # stream -> last MSN begun
        self.last_rqsn = {}   # stream -> last RQSN begun
        self.reset = set()

    def event(self, kind, values):
        pass

    @staticmethod
    def key(fields):
        msgh = fields["MSGH"]
        return msgh["stream"], bool(msgh["mflags"] & wire.RESP), msgh["msn"]

    def data_sent(self, step, again):
        fields, name = step["fields"], step["packet"]
        if name == "FILL":
            return
        cbh, msgh, check = fields["CBH"], fields["MSGH"], self.judge.check
        key, here = self.key(fields), (cbh["path"], cbh["epoch"], cbh["psn"])
        if not again:
            known = self.pieces.get(key, {}).get(msgh["offset"])
            if known is not None:
                self.s.routes.piece_again(known, fields)
        self.pieces.setdefault(key, {})[msgh["offset"]] = here
        if again:
            return
        check("STRM-003", key[0] in self.s.c.control.may_send[self.s.side])
        self.numbers(key, name, msgh)
        self.cut(name, fields)
        head = name, msgh["rqsn"], msgh["len"], fields.get("TAGH", {}).get("va"), fields.get("TAGH", {}).get("rkey")
        if self.heads.setdefault(key, head) is not head:
            check("STRM-009", self.heads[key] == head)
        if name == "WRITE":
            check("STRM-008", msgh["rqsn"] == 0)
            check("PKT-013", fields["TAGH"]["imm"] == 0)
        bits = {"SEND_IMM": wire.IMM, "WRITE_IMM": wire.IMM, "SEND_INV": wire.INV, "READ_RESP": wire.RESP, "ATOMIC_RESP": wire.RESP}
        check("PKT-018", msgh["mflags"] & (wire.IMM | wire.INV | wire.RESP) == bits.get(name, 0))
        if name in ("WRITE", "SEND"):
            check("PKT-014", not msgh["mflags"] & (wire.IMM | wire.INV | wire.RESP))

    def numbers(self, key, name, msgh):
        stream, resp, msn = key
        given = self.s.c.streams.get(stream)
        if resp or given is None:
            return
        check = self.judge.check
        if stream not in self.last:
            check("STRM-005", msn == given["first_msn"])
        elif msn != self.last[stream] and key not in self.heads:
            check("STRM-006", msn == (self.last[stream] + 1) % 0x1000000)
        if key not in self.heads:
            self.last[stream] = msn
            if name in wire.RECEIVES:
                last = self.last_rqsn.get(stream)
                wanted = given["first_rqsn"] if last is None else (last + 1) % 0x10000
                check("STRM-007", msgh["rqsn"] == wanted)
                self.last_rqsn[stream] = msgh["rqsn"]
            self.s.c.control.message_begins(self.s.side)
        lowest = self.lowest(stream)
        check("STRM-011", wire.ahead(msn, lowest, 24) < self.s.c.window)

    def lowest(self, stream):
        """The lowest MSN of a stream that is not wholly acknowledged."""
        msn = self.s.c.streams[stream]["first_msn"]
        while self.complete((stream, False, msn)):
            msn = (msn + 1) % 0x1000000
        return msn

    def complete(self, key):
        if key not in self.heads:
            return False
        return len(self.arrived.get(key, ())) == self.count(key)

    def count(self, key):
        name, length = self.heads[key][0], self.heads[key][2]
        return max(1, -(-length // self.s.c.P)) if name in wire.PAYLOAD else 1

    def all_sent(self, key):
        return len(self.pieces.get(key, ())) == self.count(key) if key in self.heads else False

    def cut(self, name, fields):
        msgh, check, size = fields["MSGH"], self.judge.check, self.s.c.P
        payload = len(fields.get("payload", {}).get("payload", "")) // 2
        check("STRM-013", msgh["offset"] % size == 0)
        if name in wire.PAYLOAD:
            rest = msgh["len"] - msgh["offset"]
            check("STRM-014", payload == size if rest > size else payload == rest)
            check("STRM-015", bool(msgh["mflags"] & wire.SOM) == (msgh["offset"] == 0))
            check("STRM-016", bool(msgh["mflags"] & wire.EOM) == (msgh["offset"] + payload == msgh["len"]))
            check("PKT-006", fields["CBH"]["pad"] == -payload % 4)
            if msgh["len"] == 0:
                check("STRM-018", payload == 0 and msgh["mflags"] & (wire.SOM | wire.EOM) == wire.SOM | wire.EOM)

    def reported(self, step):
        if step["packet"] != "FILL":
            self.arrived.setdefault(self.key(step["fields"]), set()).add(step["fields"]["MSGH"]["offset"])
