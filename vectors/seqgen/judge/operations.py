"""Reads and atomics: requests at the responder, responses at the requester."""

from .. import wire

ATOMIC = ("CMP_SWAP", "FETCH_ADD")


class Operations:
    """What side `side` has been asked for, and what it answers."""

    def __init__(self, work):
        self.w, self.judge, self.c, self.side = work, work.judge, work.c, work.side
        self.waiting = []     # requests that have arrived and wait for lower messages
        self.asked = {}       # (stream, msn) -> step of the request, of the peer
        self.ready = set()    # requests carried out
        self.result = {}      # (stream, msn) -> value before an atomic operation
        self.at = {}          # address -> clause about what an atomic operation leaves there
        self.overlap = {}     # (stream, msn) -> value before the operation that came before it at the same address
        self.first = {}       # (stream, msn, offset) -> fields of the first response packet
        self.under_way = set()
        self.imm = {}         # (stream, msn) -> immediate data of this side's messages

    # --- the responder ------------------------------------------------------------------------------------------------

    def arrived(self, step):
        """A request has arrived at this side."""
        msgh = step["fields"]["MSGH"]
        if step["packet"] in ATOMIC or step["packet"] == "READ_REQ":
            self.asked[msgh["stream"], msgh["msn"]] = step
            self.waiting.append(step)
        for request in list(self.waiting):
            if not self.w.overtakes(request["fields"]["MSGH"]):
                self.waiting.remove(request)
                self.carry_out(request)

    def carry_out(self, step):
        fields = step["fields"]
        key = fields["MSGH"]["stream"], fields["MSGH"]["msn"]
        self.ready.add(key)
        clause = "OPS-049" if step["packet"] in ATOMIC else "OPS-048"
        self.judge.due(clause, ("response", self.c.number, self.side, *key), self.judge.now)
        if step["packet"] in ATOMIC:
            at = int(fields["TAGH"]["va"], 16)
            self.overlap[key] = next((self.result[k] for k in reversed(self.result) if self.asked[k]["fields"]["TAGH"]["va"] == fields["TAGH"]["va"]), None)
            self.at[at] = "OPS-027" if step["packet"] == "FETCH_ADD" else "OPS-026"
            self.result[key] = self.operate(step, self.w.bytes)
            self.operate(step, self.w.naive)

    @staticmethod
    def operate(step, memory):
        """The operation on memory of a host that puts the least significant byte first; gives the value before."""
        fields = step["fields"]
        at, atomic = int(fields["TAGH"]["va"], 16), fields["ATOMIC"]
        before = int.from_bytes(bytes(memory.get(at + n, 0) for n in range(8)), "little")
        operand = int(atomic["swap_or_add"], 16)
        if step["packet"] == "FETCH_ADD":
            after = (before + operand) % 2**64
        else:
            after = operand if before == int(atomic["compare"], 16) else before
        memory.update(enumerate(after.to_bytes(8, "little"), at))
        return before

    def response_sent(self, step, again):
        fields, check = step["fields"], self.judge.check
        msgh = fields["MSGH"]
        key = msgh["stream"], msgh["msn"]
        place = *key, msgh["offset"]
        request = self.asked.get(key)
        reading = step["packet"] == "READ_RESP"
        body = {k: v for k, v in fields.items() if k not in ("CBH", "MSGH")}
        if again:
            check("OPS-036" if reading else "OPS-042", body == self.first[place])
            return
        if request is None or (reading and request["fields"]["MSGH"]["len"] != msgh["len"]):
            check("OPS-016" if reading else "OPS-028", False)
            return
        self.judge.met(("response", self.c.number, self.side, *key))
        if place in self.first:
            check("OPS-018" if reading else "OPS-029", False)
            return
        self.first[place] = body
        if reading:
            check("OPS-015", key in self.ready)
            check("OPS-016", True)
            check("OPS-018", True)
            start = int(request["fields"]["TAGH"]["va"], 16) + msgh["offset"]
            data = bytes.fromhex(fields["payload"]["payload"])
            check("OPS-017", data == bytes(self.w.bytes.get(start + n, 0) for n in range(len(data))))
        else:
            check("OPS-031", key in self.ready)
            said, before = int(fields["ATOMIC_RESP"]["original"], 16), self.overlap.get(key)
            if before is not None and not check("OPS-030", said == self.result[key] or said != before):
                return
            check("OPS-028", said == self.result.get(key))

    # --- the requester ------------------------------------------------------------------------------------------------

    def request_sent(self, step, again):
        """Any message packet of this side."""
        fields, name, check = step["fields"], step["packet"], self.judge.check
        msgh, peer = fields["MSGH"], self.c.given[wire.other(self.side)]
        key = msgh["stream"], msgh["msn"]
        if name in ("READ_RESP", "ATOMIC_RESP"):
            self.response_sent(step, again)
            return
        if again or name == "FILL":
            return
        agreed = {"SEND_IMM": "IMM" in self.c.features, "WRITE_IMM": "IMM" in self.c.features, "SEND_INV": "INV" in self.c.features,
                  "READ_REQ": peer["read_depth"] > 0, "CMP_SWAP": peer["atomic_depth"] > 0, "FETCH_ADD": peer["atomic_depth"] > 0}
        if name in agreed:
            check("OPS-001", agreed[name])
        if name in ("SEND_IMM", "WRITE_IMM"):
            imm = fields["SEND_IMM"]["imm"] if name == "SEND_IMM" else fields["TAGH"]["imm"]
            check("OPS-003", self.imm.setdefault(key, imm) == imm)
        if name == "SEND_INV":
            self.w.keys.sent(step)
        if name in ATOMIC or name == "READ_REQ":
            check("PKT-019" if name == "READ_REQ" else "PKT-029", msgh["mflags"] == wire.SOM | wire.EOM and msgh["offset"] == 0)
            check("PKT-020", msgh["rqsn"] == 0)
            check("PKT-021", fields["TAGH"]["imm"] == 0)
            self.under_way.add((name == "READ_REQ", *key))
            count = sum(1 for reading, *_ in self.under_way if reading == (name == "READ_REQ"))
            check("OPS-013" if name == "READ_REQ" else "OPS-024", count <= peer["read_depth" if name == "READ_REQ" else "atomic_depth"])
        if name in ATOMIC:
            check("OPS-032", int(fields["TAGH"]["va"], 16) % 8 == 0 and msgh["len"] == 8)
        if fields["CBH"]["flags"] & wire.SE:
            check("OPS-037", bool(msgh["mflags"] & wire.EOM))

    def response_done(self, values, work, stream):
        """A Read or an atomic request is reported as successful."""
        key = stream, True, work["msn"]
        if work["kind"] == "read":
            self.judge.check("OPS-021", self.w.whole(key))
        else:
            self.judge.check("OPS-047", self.w.whole(key))
        self.under_way.discard((work["kind"] == "read", stream, work["msn"]))
