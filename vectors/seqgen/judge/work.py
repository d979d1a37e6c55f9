"""Work, credit, memory and completions of one side."""

from .. import wire
from .keys import Keys
from .operations import ATOMIC, Operations
from .refusals import LENGTH, REM_ACCESS, RNR, Refusals

SUCCESS = "IBV_WC_SUCCESS"
FLUSHED = "IBV_WC_WR_FLUSH_ERR"


class Work:
    """What one side has posted, promised, placed and completed."""

    def __init__(self, connection, side):
        self.c, self.judge, self.side, self.peer = connection, connection.judge, side, wire.other(side)
        self.queues = {}      # stream -> [work posted by this side, in order]
        self.done = {}        # stream -> number completed
        self.receives = {}    # (stream, rqsn) -> receive
        self.told, self.heard, self.posted = {}, {}, {}
        self.blocked = {}
        self.got = {}         # (stream, resp, msn) -> {offset}, of the peer's messages
        self.heads = {}
        self.recv_done, self.flushed = {}, {}
        self.bytes, self.naive = {}, {}
        self.blame, self.refused_bytes = "REL-006", {}
        self.imm, self.alone = {}, {}
        self.refusals, self.operations, self.keys = Refusals(self), Operations(self), Keys(self)
        self.regions = []
        for region in connection.memory["regions"]:
            if region["side"] == side and region.get("connection", 0) == connection.number:
                self.regions.append(region)
                for store in (self.bytes, self.naive):
                    store.update(enumerate(bytes.fromhex(region.get("holds", "")), int(region["va"], 16)))
        for receive in connection.memory["receives"]:
            if receive["side"] == side and receive.get("connection", 0) == connection.number:
                self.receives[receive["stream"], receive["rqsn"]] = receive
        for stream, given in connection.streams.items():
            self.told[stream] = given["rq_limit"][side]
            self.posted[stream] = given["rq_limit"][side]
            self.heard[stream] = given["rq_limit"][self.peer]

    # --- credit -------------------------------------------------------------------------------------------------------

    def limit_told(self, stream, limit):
        if stream in self.told:
            self.judge.check("STRM-031", wire.ahead(limit, self.told[stream], 16) >= 0)
        if stream in self.posted:
            self.judge.check("RCV-004", wire.ahead(limit, self.posted[stream], 16) <= 0)
            used = [r for s, r in self.receives if s == stream]
            if used:
                self.judge.check("RCV-003", True)
        self.judge.met(("told", self.c.number, self.side, stream))
        if stream not in self.told or wire.ahead(limit, self.told[stream], 16) > 0:
            self.told[stream] = limit

    def limit_heard(self, stream, limit):
        if stream not in self.heard or wire.ahead(limit, self.heard[stream], 16) > 0:
            self.heard[stream] = limit
        if self.blocked.get(stream) is not None and wire.ahead(self.blocked[stream], self.heard[stream], 16) < 0:
            self.blocked[stream] = None
            self.judge.void(lambda key: key == ("ask", self.c.number, self.side, stream))

    def asked(self, stream):
        self.judge.met(("ask", self.c.number, self.side, stream))

    def data_sent(self, step):
        msgh = step["fields"]["MSGH"]
        if step["packet"] in wire.RECEIVES and msgh["stream"] in self.heard:
            self.judge.check("RCV-002" if step["packet"] == "WRITE_IMM" else "STRM-010", wire.ahead(msgh["rqsn"], self.heard[msgh["stream"]], 16) < 0)

    # --- placing ------------------------------------------------------------------------------------------------------

    def place_of(self, step):
        """Address of the first payload byte, or nothing where there is no place."""
        fields, name = step["fields"], step["packet"]
        msgh = fields["MSGH"]
        if name in ("WRITE", "WRITE_IMM"):
            return int(fields["TAGH"]["va"], 16) + msgh["offset"]
        if name in ("SEND", "SEND_IMM", "SEND_INV"):
            receive = self.receives.get((msgh["stream"], msgh["rqsn"]))
            return receive and int(receive["va"], 16) + msgh["offset"]
        if name == "READ_RESP":
            work = self.peer_request(msgh)
            return work and work.get("local") and int(work["local"], 16) + msgh["offset"]
        return None

    def peer_request(self, msgh):
        queue = self.queues.get(msgh["stream"], [])
        return next((work for work in queue if work["msn"] == msgh["msn"]), None)

    def admits(self, step):
        """Whether the checks of meaning let a data packet in; where not, an answer is due."""
        fields, name = step["fields"], step["packet"]
        msgh = fields["MSGH"]
        if name == "FILL" or self.refusals.over(msgh["stream"]):
            return True
        if name in wire.TAGGED and not self.inside(fields, name):
            self.refusals.refuse(step, REM_ACCESS)
            if fields["TAGH"]["rkey"] in self.keys.invalid:
                self.refusals.expect(step, REM_ACCESS, "OPS-011")
            return False
        if name == "SEND_INV" and not self.keys.may_be_closed(fields["SEND_INV"]["rkey"]):
            self.refusals.refuse(step, REM_ACCESS, "OPS-012")
            return False
        if name in ("SEND", "SEND_IMM", "SEND_INV"):
            receive = self.receives.get((msgh["stream"], msgh["rqsn"]))
            if receive is None:
                self.refusals.refuse(step, RNR)
                return False
            if msgh["len"] > receive["length"]:
                self.refusals.refuse(step, LENGTH)
                return False
        return True

    def inside(self, fields, name):
        need = {"WRITE": "remote_write", "WRITE_IMM": "remote_write", "READ_REQ": "remote_read"}.get(name, "remote_atomic")
        tagh, msgh = fields["TAGH"], fields["MSGH"]
        start, end = int(tagh["va"], 16), int(tagh["va"], 16) + msgh["len"]
        if msgh["len"] == 0:
            self.judge.exercised.add("MEM-005")
            return True
        return tagh["rkey"] not in self.keys.invalid and any(r["rkey"] == tagh["rkey"] and need in r["allow"] and int(r["va"], 16) <= start
                   and end <= int(r["va"], 16) + r["length"] for r in self.regions)

    def put(self, step, stores):
        at = self.place_of(step)
        if at is None:
            return
        for n, byte in enumerate(bytes.fromhex(step["fields"].get("payload", {}).get("payload", ""))):
            for store in stores:
                store[at + n] = byte

    def placed(self, step):
        """A first arrival is placed, unless there is nothing to place any more."""
        if step["packet"] == "FILL" or self.refusals.over(step["fields"]["MSGH"]["stream"]):
            return
        self.put(step, (self.bytes, self.naive))
        msgh = step["fields"]["MSGH"]
        key = msgh["stream"], bool(msgh["mflags"] & wire.RESP), msgh["msn"]
        self.got.setdefault(key, set()).add(msgh["offset"])
        self.heads[key] = step["packet"], msgh["len"], msgh["rqsn"]
        if step["packet"] in ("SEND_IMM", "WRITE_IMM"):
            fields = step["fields"]
            self.imm[key] = fields["SEND_IMM"]["imm"] if step["packet"] == "SEND_IMM" else fields["TAGH"]["imm"]
        if step["packet"] == "ATOMIC_RESP" and (work := self.peer_request(msgh)) and work.get("local"):
            value = int(step["fields"]["ATOMIC_RESP"]["original"], 16).to_bytes(8, "little")
            for store in (self.bytes, self.naive):
                store.update(enumerate(value, int(work["local"], 16)))
        if step["packet"] == "WRITE_IMM":
            receive = self.receives.get((msgh["stream"], msgh["rqsn"]))
            if receive:
                self.alone[int(receive["va"], 16)] = receive["length"]
        if step["packet"] == "SEND_INV":
            self.keys.arrived(step)
        self.operations.arrived(step)

    def not_placed(self, step):
        """Remembers what a refused packet would have written."""
        at = self.place_of(step)
        if at is not None:
            self.refused_bytes.update(enumerate(bytes.fromhex(step["fields"].get("payload", {}).get("payload", "")), at))

    def duplicate(self, step, clause="REL-006"):
        """A packet that must not be placed: looks at memory tell whether it was."""
        self.put(step, (self.naive,))
        if step["packet"] in ATOMIC:
            self.operations.operate(step, self.naive)
            clause = "OPS-029"
        self.blame = clause
        self.judge.exercised.add(clause)

    def memory(self, values):
        start, seen = int(values["va"], 16), bytes.fromhex(values["hex"])
        right = bytes(self.bytes.get(start + n, 0) for n in range(len(seen)))
        naive = bytes(self.naive.get(start + n, 0) for n in range(len(seen)))
        check = self.judge.check
        if right != naive:
            check(self.blame, seen != naive)
            if seen == naive:
                return
        if start in self.alone:
            check("OPS-005", seen == right)
            return
        refused = self.refused_bytes
        if refused and any(start + n in refused for n in range(len(seen))):
            placed = all(seen[n] == refused.get(start + n, seen[n]) for n in range(len(seen)))
            check("STRM-032", not placed)
            self.judge.exercised.add("ERR-005")
            if placed:
                return
        beyond = [n for n in range(len(seen)) if start + n not in self.bytes]
        if beyond:
            check("STRM-021", not any(seen[n] for n in beyond))
            if any(seen[n] for n in beyond):
                return
        asked = [work["kind"] for queue in self.queues.values() for work in queue if work.get("local") and int(work["local"], 16) == start]
        if asked:
            if "read" in asked:
                check("OPS-020", seen == right)
            return
        if start in self.operations.at:
            check(self.operations.at[start], seen == right)
            return
        write = any(int(r["va"], 16) <= start < int(r["va"], 16) + r["length"] for r in self.regions)
        check("STRM-019" if write else "STRM-020", seen == right)

    # --- completions --------------------------------------------------------------------------------------------------

    def event(self, kind, values):
        stream = values.get("stream")
        if kind == "post_recv":
            self.receives[stream, values["rqsn"]] = values
            self.judge.due("RCV-005", ("told", self.c.number, self.side, stream), self.judge.now)
            top = wire.ahead(values["rqsn"] + 1, self.posted.get(stream, 0), 16)
            if top > 0:
                self.posted[stream] = (values["rqsn"] + 1) % 0x10000
            else:
                self.judge.void(lambda key: key == ("told", self.c.number, self.side, stream))
        elif kind == "take_recv":
            del self.receives[stream, values["rqsn"]]
        elif kind.startswith("post_"):
            queue = self.queues.setdefault(stream, [])
            first = self.c.streams[stream]["first_msn"] if stream in self.c.streams else 0
            rqsn = None
            if kind in ("post_send", "post_send_imm", "post_send_inv", "post_write_imm"):
                before = sum(1 for work in queue if work["rqsn"] is not None)
                base = self.c.streams[stream]["first_rqsn"] if stream in self.c.streams else 0
                rqsn = (base + before) % 0x10000
                if stream in self.heard and wire.ahead(rqsn, self.heard[stream], 16) >= 0:
                    self.blocked.setdefault(stream, rqsn)
                    self.judge.due("STRM-030", ("ask", self.c.number, self.side, stream), self.judge.now)
            queue.append(dict(values, kind=kind[5:], rqsn=rqsn, msn=(first + len(queue)) % 0x1000000, state=None))
        elif kind == "completion":
            self.completion(values, stream)
        elif kind == "memory":
            self.memory(values)
        elif kind == "invalidated":
            self.keys.closed(values["rkey"])

    def completion(self, values, stream):
        if values["work"] == "recv":
            self.receive_done(values, stream)
            return
        check, queue = self.judge.check, self.queues[stream]
        work = next(w for w in queue if w["wr_id"] == values["wr_id"])
        before = queue[: queue.index(work)]
        check("STRM-028", all(w["state"] for w in before))
        work["state"] = values["status"]
        if self.refusals.completion(values, work, before):
            return
        messages, key = self.c.senders[self.side].messages, (stream, False, work["msn"])
        if self.c.senders[self.side].routes.retiring:
            check("PATH-041", values["status"] == SUCCESS)
            if self.c.planes.count > 1:
                check("PLN-006", values["status"] == SUCCESS)
        if values["status"] == SUCCESS:
            if work["kind"] in ("send", "write"):
                check("STRM-017", messages.all_sent(key))
            if work["kind"] in ("send", "write", "send_imm", "write_imm", "send_inv"):
                check("STRM-027", messages.complete(key))
            else:
                self.operations.response_done(values, work, stream)
        elif values["status"] == "IBV_WC_RETRY_EXC_ERR":
            check("PATH-011", not any(w["state"] is None for w in before))

    def whole(self, key):
        if key not in self.heads:
            return False
        name, length, _ = self.heads[key]
        pieces = max(1, -(-length // self.c.P)) if name in wire.PAYLOAD else 1
        return len(self.got[key]) == pieces

    def other_streams_wait(self, stream):
        """Whether a message of another stream is incomplete or was refused."""
        return any(s != stream for s, _ in self.refusals.messages)

    def overtakes(self, msgh):
        """Whether a message has come before all of those below it in its stream have."""
        given = self.c.streams.get(msgh["stream"])
        if given is None or msgh["mflags"] & wire.RESP:
            return False
        first = given["first_msn"]
        lower = [(first + n) % 0x1000000 for n in range(wire.ahead(msgh["msn"], first, 24))]
        return not all(self.whole((msgh["stream"], False, m)) for m in lower)

    def receive_done(self, values, stream):
        check = self.judge.check
        rqsn = next((r for (s, r), v in self.receives.items() if s == stream and v["wr_id"] == values["wr_id"]), None)
        if values["status"] != SUCCESS:
            if values["status"] == FLUSHED:
                earlier = self.flushed.get(stream)
                check("VERB-004", earlier is None or wire.ahead(rqsn, earlier, 16) > 0)
                self.flushed[stream] = rqsn
            return
        msn = next((k[2] for k, h in self.heads.items() if k[0] == stream and h[0] in wire.RECEIVES and h[2] == rqsn), None)
        last = self.recv_done.get(stream)
        if msn is None:
            check("STRM-025", False)
            return
        first = self.c.streams[stream]["first_msn"]
        lower = [(first + n) % 0x1000000 for n in range(wire.ahead(msn, first, 24) + 1)]
        if last is not None:
            check("STRM-024", wire.ahead(msn, last, 24) > 0)
        self.recv_done[stream] = msn
        check("STRM-025", all(self.whole((stream, False, m)) for m in lower))
        head = self.heads[stream, False, msn]
        check("OPS-006" if head[0] == "WRITE_IMM" else "STRM-026", values["byte_len"] == head[1])
        if head[0] == "SEND_INV":
            self.keys.receive_done(stream, msn)
        if head[0] in ("SEND_IMM", "WRITE_IMM"):
            check("OPS-004", values.get("imm") == self.imm[stream, False, msn])
