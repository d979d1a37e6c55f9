"""Random programs over all operations, and what must come of them.

A program is a list of work for each side and stream, the receives for it, and things that happen to paths and to the
network. `Program.check` compares completions and every byte of memory with what the clauses demand.
"""

import random

MS = 1_000_000
SUCCESS, FLUSHED = "IBV_WC_SUCCESS", "IBV_WC_WR_FLUSH_ERR"


class Op:
    """One piece of work: `kind` and arguments of the request, what its completion must say, and what it changes."""

    def __init__(self, kind, wr_id, args, length, signalled=True):
        self.kind, self.wr_id, self.args, self.length, self.signalled = kind, wr_id, args, length, signalled
        self.consumes = False
        self.imm = self.inv_key = None
        self.data = None            # bytes that a message carries
        self.target = None          # (side, region name, offset): where it writes
        self.reads = None           # (region name at the peer, offset) of a Read, and where it goes
        self.status = SUCCESS       # another one ends the stream
        self.solicited = False


class Side:
    def __init__(self, name):
        self.name = name
        self.regions = {}           # name -> {"mr", "va", "rkey", "size"}
        self.expect = {}            # name -> bytearray
        self.maybe = {}             # name -> [(offset, bytes)]: may or may not be there
        self.receives = {}          # (stream index) -> [(wr_id, offset, size)]
        self.completions = []       # events
        self.established = self.over = None
        self.events = []


def config(seed, reference_hints=False):
    """Settings of both sides and of the network, by chance."""
    rng = random.Random(seed * 7919 + 1)
    every = ["imm", "inv", "reset", "retire", "change"]
    features = every if rng.random() < 0.6 else [f for f in every if rng.random() < 0.7]
    paths = rng.choice([1, 2, 3, 4, 4, 8])
    planes = rng.choice([0, 0, 0, 1, 2])
    common = {"features": features, "paths": paths, "streams": rng.choice([1, 2, 3, 4]),
              "payload_size": rng.choice([256, 512, 1024, 1024, 2048, 4096]), "msg_window": rng.choice([1, 2, 5, 16, 64]),
              "read_depth": rng.choice([0, 1, 2, 8, 16]), "atomic_depth": rng.choice([0, 1, 3, 16])}
    sides = []
    for _ in range(2):
        own = dict(common)
        own["ack_delay_us"] = rng.choice([200, 1000, 5000, 20000])
        own["source_ports"] = paths + rng.choice([0, 4])
        own["srq"] = rng.random() < 0.2
        own["spray_run"] = rng.choice([1, 1, 2, 8])
        own["planes"] = planes
        sides.append(own)
    network = {"loss": rng.choice([0, 0, 0.01, 0.03, 0.05, 0.1]), "duplicate": rng.choice([0, 0, 0.01, 0.05]),
               "reorder": rng.choice([0, 0, 0.02, 0.1]), "mark": rng.choice([0, 0, 0.02, 0.2]),
               "delay": rng.choice([100_000, 500_000, 1 * MS, 3 * MS])}
    network["ack_loss"] = network["loss"] if rng.random() < 0.7 else rng.choice([0, 0.2])
    return sides, network


class Program:
    SIZE = 1 << 18   # bytes of most regions

    def __init__(self, seed, streams, settings, faults=True):
        self.seed = seed
        self.rng = random.Random(seed)
        self.streams = streams                  # wire numbers, agreed
        self.settings = settings                # of both sides
        self.features = settings[0]["features"]
        self.sides = [Side("a"), Side("b")]
        self.ops = {(s, n): [] for s in (0, 1) for n in range(len(streams))}
        self.next = {}                          # (side, region) -> next free offset
        self.bad_streams = set()                # indices of streams that end with an error
        self.faults = faults

    # Regions: name, size, rights. Every region has random contents at first.
    REGIONS = [("target", SIZE, {"remote_write": True, "remote_read": True, "remote_atomic": True}),
               ("source", SIZE, {"remote_write": False, "remote_read": True}),
               ("local", SIZE, {"remote_write": False}), ("receive", SIZE, {"remote_write": False}),
               ("key0", 4096, {"remote_write": True, "invalidate": True}),
               ("key1", 4096, {"remote_write": True, "invalidate": True})]

    def contents(self, side, name, size):
        data = random.Random(f"{self.seed} {side} {name}").randbytes(size)
        self.sides[side].expect[name] = bytearray(data)
        self.sides[side].maybe[name] = []
        return data

    def allot(self, side, name, length, align=1):
        """A piece of a region that nothing else uses, or None."""
        at = self.next.get((side, name), 0)
        at = -(-at // align) * align
        if at + length > self.SIZE:
            return None
        self.next[(side, name)] = at + length + self.rng.choice([0, 0, 1, 7])
        return at

    def length(self):
        rng = self.rng
        p = self.settings[0]["payload_size"]
        return rng.choice([0, 1, rng.randrange(1, 64), p, p - 1, p + 1, 2 * p, rng.randrange(1, 8 * p), rng.randrange(1, 20000)])

    def build(self):
        """Makes the work. Regions have been registered."""
        rng = self.rng
        wr_id = 1
        for index in range(len(self.streams)):
            fault = None
            if self.faults and "reset" in self.features and rng.random() < 0.25:
                fault = rng.randrange(2)
                self.bad_streams.add(index)
            for side in (0, 1):
                count = rng.randrange(0, 14)
                for _ in range(count):
                    op = self.good(side, index, wr_id)
                    if op is not None:
                        self.ops[(side, index)].append(op)
                        wr_id += 1
                if fault == side:
                    op = self.bad(side, index, wr_id)
                    self.ops[(side, index)].append(op)
                    wr_id += 1
                    for _ in range(rng.randrange(3)):
                        op = self.good(side, index, wr_id)
                        if op is not None:
                            self.ops[(side, index)].append(op)
                            wr_id += 1
                if self.ops[(side, index)]:
                    last = self.ops[(side, index)][-1]
                    last.signalled = True
                    last.args.pop("signalled", None)
        self.plan_receives(wr_id)

    def piece(self, side, length):
        """A local source: region or inline bytes."""
        data_at = self.rng.randrange(0, self.SIZE - length + 1)
        data = bytes(self.sides[side].expect["source"][data_at:data_at + length])
        if length <= 200 and self.rng.random() < 0.3:
            return {"inline": data.hex()}, data
        return {"mr": self.sides[side].regions["source"]["mr"], "offset": data_at, "len": length}, data

    def common(self, op_kind):
        rng, args = self.rng, {}
        if rng.random() < 0.2:
            args["signalled"] = False
        if rng.random() < 0.1:
            args["fence"] = True
        if op_kind in ("send", "write") and rng.random() < 0.2:
            args["solicited"] = True
        return args

    def good(self, side, index, wr_id):
        """Work that must succeed, unless its stream ends."""
        rng, peer = self.rng, 1 - side
        kinds = ["send", "write", "write"]
        if self.settings[peer]["read_depth"]:
            kinds += ["read", "read"]
        if self.settings[peer]["atomic_depth"]:
            kinds += ["fetch_add", "cmp_swap"]
        kind = rng.choice(kinds)
        args = self.common(kind)
        there = self.sides[peer].regions
        if kind in ("send", "write"):
            length = self.length()
            piece, data = self.piece(side, length)
            args.update(piece)
            op = Op(kind, wr_id, args, length, args.get("signalled", True))
            op.data = data
            op.solicited = args.get("solicited", False)
            if kind == "write":
                at = self.allot(peer, "target", length)
                if at is None:
                    return None
                args.update(va=there["target"]["va"] + at, rkey=there["target"]["rkey"])
                op.target = (peer, "target", at)
                if "imm" in self.features and rng.random() < 0.3:
                    op.imm = args["imm"] = rng.getrandbits(32)
                    op.consumes = True
            else:
                op.consumes = True
                if "imm" in self.features and rng.random() < 0.3:
                    op.imm = args["imm"] = rng.getrandbits(32)
            return op
        if kind == "read":
            length = self.length()
            to = self.allot(side, "local", length)
            if to is None:
                return None
            written = [o for o in self.ops[(side, index)] if o.kind == "write" and o.target and o.length and not o.args.get("late")]
            if written and rng.random() < 0.5:   # what an earlier Write of the stream has left
                before = rng.choice(written)
                length = min(length, before.length)
                name, at = "target", before.target[2]
                data = before.data[:length]
            else:
                name, at = "source", rng.randrange(0, self.SIZE - length + 1)
                data = bytes(self.sides[peer].expect["source"][at:at + length])
            args.update(mr=self.sides[side].regions["local"]["mr"], offset=to, len=length, va=there[name]["va"] + at,
                        rkey=there[name]["rkey"])
            op = Op(kind, wr_id, args, length, args.get("signalled", True))
            op.data, op.target = data, (side, "local", to)
            return op
        to = self.allot(side, "local", 8)
        counter = self.counter(side, index)
        if to is None or counter is None:
            return None
        value = int.from_bytes(self.sides[peer].expect["target"][counter:counter + 8], "little")
        for before in self.ops[(side, index)]:
            if hasattr(before, "after"):
                value = before.after
        args.update(mr=self.sides[side].regions["local"]["mr"], offset=to, len=8, va=there["target"]["va"] + counter,
                    rkey=there["target"]["rkey"])
        op = Op(kind, wr_id, args, 8, args.get("signalled", True))
        op.data, op.target = value.to_bytes(8, "little"), (side, "local", to)
        if kind == "fetch_add":
            add = rng.getrandbits(64)
            args["add"] = hex(add)
            op.after = (value + add) & (1 << 64) - 1
        else:
            good = rng.random() < 0.5
            swap = rng.getrandbits(64)
            args["compare"], args["swap"] = hex(value if good else value ^ 1), hex(swap)
            op.after = swap if good else value
        op.counter = (peer, "target", counter)
        return op

    def counter(self, side, index):
        """8 bytes at the peer that only this stream touches."""
        key = ("counter", side, index)
        if key not in self.next:
            self.next[key] = self.allot(1 - side, "target", 8, align=8)
        return self.next[key]

    def bad(self, side, index, wr_id):
        """Work that must fail, and its stream with it."""
        rng, peer = self.rng, 1 - side
        there = self.sides[peer].regions
        mine = self.sides[side].regions
        kinds = ["rkey", "bounds", "rights"]
        if not self.settings[peer].get("srq"):
            kinds += ["length", "length"]
        if self.settings[peer]["read_depth"]:
            kinds += ["read_key"]
        else:
            kinds += ["no_reads"]
        if self.settings[peer]["atomic_depth"]:
            kinds += ["unaligned", "atomic_key"]
        if "inv" in self.features:
            kinds += ["inv_key", "inv_twice"]
        else:
            kinds += ["no_inv"]
        kind = rng.choice(kinds)
        length = rng.randrange(1, 5000)
        piece, data = self.piece(side, length)
        local = {"mr": mine["local"]["mr"], "offset": 0, "len": 8}
        target = there["target"]
        if kind in ("rkey", "bounds", "rights"):
            va, rkey = target["va"], target["rkey"]
            if kind == "rkey":
                rkey ^= 0x5A5A
            elif kind == "bounds":
                va += self.SIZE - length + 1
            else:
                va, rkey = there["source"]["va"], there["source"]["rkey"]
            op = Op("write", wr_id, {**piece, "va": va, "rkey": rkey}, length)
            op.status = "IBV_WC_REM_ACCESS_ERR"
        elif kind == "length":
            op = Op("send", wr_id, piece, length)
            op.consumes, op.status, op.data, op.short = True, "IBV_WC_REM_INV_REQ_ERR", data, True
        elif kind == "read_key":
            op = Op("read", wr_id, {**local, "va": there["local"]["va"], "rkey": there["local"]["rkey"]}, 8)
            op.status = "IBV_WC_REM_ACCESS_ERR"
        elif kind == "no_reads":
            op = Op("read", wr_id, {**local, "va": target["va"], "rkey": target["rkey"]}, 8)
            op.status = "IBV_WC_LOC_QP_OP_ERR"
        elif kind == "unaligned":
            op = Op("fetch_add", wr_id, {**local, "va": target["va"] + 4, "rkey": target["rkey"], "add": "0x1"}, 8)
            op.status = "IBV_WC_LOC_QP_OP_ERR"
        elif kind == "atomic_key":
            op = Op("cmp_swap", wr_id, {**local, "va": there["source"]["va"], "rkey": there["source"]["rkey"],
                                        "compare": "0x0", "swap": "0x1"}, 8)
            op.status = "IBV_WC_REM_ACCESS_ERR"
        elif kind in ("inv_key", "inv_twice"):
            op = Op("send", wr_id, {**piece, "invalidate": target["rkey"]}, length)
            op.consumes, op.status, op.data = True, "IBV_WC_REM_ACCESS_ERR", data
        else:
            op = Op("send", wr_id, {**piece, "invalidate": 1}, length)
            op.consumes, op.status, op.data = True, "IBV_WC_LOC_QP_OP_ERR", data
            op.consumes = False
        op.bad = kind
        return op

    def invalidations(self):
        """A good SEND_INV on one stream of each side closes a key of its own."""
        if "inv" not in self.features:
            return
        for side in (0, 1):
            for key in ("key0", "key1"):
                index = self.rng.randrange(len(self.streams))
                if index in self.bad_streams:
                    continue
                piece, data = self.piece(side, 100)
                rkey = self.sides[1 - side].regions[key]["rkey"]
                op = Op("send", 900_000 + side * 10 + int(key[3]), {**piece, "invalidate": rkey}, 100)
                op.consumes, op.data, op.inv_key = True, data, rkey
                self.ops[(side, index)].append(op)

    def plan_receives(self, wr_id):
        """Receives for everything that consumes one; those of a stream that fails may be left over."""
        self.invalidations()
        rng = self.rng
        wr_id = 1_000_000
        for side in (0, 1):
            plan = self.sides[side].receives = {}
            every = []
            for index in range(len(self.streams)):
                plan[index] = []
                for op in self.ops[(1 - side, index)]:
                    if not op.consumes:
                        continue
                    size = op.length + rng.choice([0, 0, 1, 100])
                    if self.settings[side].get("srq"):
                        size = 36000
                    if getattr(op, "short", False):
                        size = 0 if not self.settings[side].get("srq") else 36000
                    every.append((index, wr_id, size, op))
                    wr_id += 1
            if self.settings[side].get("srq"):   # promises that a stream does not use are missing to the others
                extra = len(every) * len(self.streams) + 40
                every += [(0, wr_id + n, 36000, None) for n in range(extra)]
                wr_id += extra
            for index, number, size, op in every:
                if self.settings[side].get("srq"):
                    at = self.next.get((side, "receive"), 0)
                    at = 0 if at + size > self.SIZE else at
                    self.next[(side, "receive")] = at + size
                else:
                    at = self.allot(side, "receive", size)
                if at is None:
                    at = 0
                    self.sides[side].overlap = True
                plan[index].append((number, at, size))

    # What must come of it.

    def check(self):
        """A list of what is wrong."""
        wrong = []
        for side in (0, 1):
            self.check_completions(side, wrong)
        self.expect_memory()
        return wrong

    def check_chaos(self, refused=()):
        """What holds whatever a program does: order, one cause, nothing twice, and memory that nobody else has written."""
        wrong = []
        for side in (0, 1):
            name = self.sides[side].name
            for index, stream in enumerate(self.streams):
                found = self.visible(side, stream, ("send", "write", "read", "fetch_add", "cmp_swap"))
                ops = [op for op in self.ops[(side, index)] if getattr(op, "posted", False)
                       and (side, op.wr_id) not in refused]
                at, ended, causes = 0, False, 0
                for op in ops:
                    if at < len(found) and found[at]["wr_id"] == op.wr_id:
                        status = found[at]["status"]
                        op.done = status == SUCCESS
                        if op.done and ended:
                            wrong.append(f"{name} stream {stream}: success after an error: {found[at]}")
                        if op.done and op.status != SUCCESS:
                            wrong.append(f"{name} stream {stream}: {found[at]}, must fail with {op.status}")
                        ended = ended or not op.done
                        causes += status not in (SUCCESS, FLUSHED)
                        at += 1
                    elif op.signalled or ended:
                        wrong.append(f"{name} stream {stream}: no completion of work {op.wr_id} in its turn; next is "
                                     f"{found[at] if at < len(found) else None}")
                        break
                    else:
                        op.done = True
                if causes > 1:
                    wrong.append(f"{name} stream {stream}: more than one cause: {found}")
                if at < len(found):
                    wrong.append(f"{name} stream {stream}: further completions {found[at:]}")
                self.chaos_receives(side, index, stream, refused, wrong)
        self.expect_memory()
        return wrong

    def chaos_receives(self, side, index, stream, refused, wrong):
        name = self.sides[side].name
        found = self.visible(side, stream, ("recv", "recv_write"))
        ended, seen = False, set()
        ops = [op for op in self.ops[(1 - side, index)] if op.consumes and getattr(op, "posted", False)
               and (1 - side, op.wr_id) not in refused]
        good = 0
        sizes = {n: (at, size) for plan in self.sides[side].receives.values() for n, at, size in plan}
        for event in found:
            if event["wr_id"] in seen:
                wrong.append(f"{name} stream {stream}: receive twice: {event}")
            seen.add(event["wr_id"])
            if event["status"] == SUCCESS:
                if ended:
                    wrong.append(f"{name} stream {stream}: receive succeeds after an error: {event}")
                op = ops[good]
                good += 1
                if (event["byte_len"], event.get("imm"), event.get("invalidated")) != (op.length, op.imm, op.inv_key):
                    wrong.append(f"{name} stream {stream}: {event} for work {op.wr_id} of {op.length}")
                op.received = True
                if op.kind == "send":
                    op.target = (side, "receive", sizes[event["wr_id"]][0])
            else:
                ended = True

    def visible(self, side, stream, kinds):
        return [c for c in self.sides[side].completions if c["stream"] == stream and (c["kind"] in kinds)]

    def check_completions(self, side, wrong):
        name = self.sides[side].name
        for index, stream in enumerate(self.streams):
            bad = index in self.bad_streams
            found = self.visible(side, stream, ("send", "write", "read", "fetch_add", "cmp_swap"))
            at, ended = 0, False
            for op in self.ops[(side, index)]:
                seen = at < len(found) and found[at]["wr_id"] == op.wr_id
                if not seen:
                    if op.signalled or op.status != SUCCESS or ended:
                        wrong.append(f"{name} stream {stream}: no completion of work {op.wr_id} ({op.kind}, {op.status}); "
                                     f"next is {found[at] if at < len(found) else None}")
                        return
                    op.done = True
                    continue
                status = found[at]["status"]
                allowed = {op.status}
                if bad:
                    allowed.add(FLUSHED)
                if ended:
                    allowed = {FLUSHED, op.status} - {SUCCESS}
                if status not in allowed:
                    wrong.append(f"{name} stream {stream}: work {op.wr_id} ({op.kind} of {op.length}, "
                                 f"{getattr(op, 'bad', 'good')}) has {status}, not {allowed}")
                if status == SUCCESS and found[at]["byte_len"] != op.length:
                    wrong.append(f"{name} stream {stream}: work {op.wr_id} has byte_len {found[at]['byte_len']}, not {op.length}")
                op.done = status == SUCCESS
                if status == SUCCESS and not op.signalled:
                    wrong.append(f"{name} stream {stream}: work {op.wr_id} was not signalled")
                ended = ended or status != SUCCESS
                at += 1
            if at < len(found):
                wrong.append(f"{name} stream {stream}: further completions {found[at:]}")
            self.check_receives(side, index, stream, bad, wrong)

    def check_receives(self, side, index, stream, bad, wrong):
        name = self.sides[side].name
        found = self.visible(side, stream, ("recv", "recv_write"))
        sizes = {n: (at, size) for plan in self.sides[side].receives.values() for n, at, size in plan}
        order = [n for n, _, _ in self.sides[side].receives[index]]
        found = [c for c in found if c["status"] != FLUSHED] if self.settings[side].get("srq") and bad else found
        if not self.settings[side].get("srq") and [c["wr_id"] for c in found] != order[:len(found)]:
            wrong.append(f"{name} stream {stream}: receives {[c['wr_id'] for c in found]}, posted {order}")
            return
        ops = [op for op in self.ops[(1 - side, index)] if op.consumes]
        ended = False
        for op, event in zip(ops, found):
            if event["status"] != SUCCESS:
                if not bad:
                    wrong.append(f"{name} stream {stream}: receive {event}")
                ended = True
                continue
            if ended:
                wrong.append(f"{name} stream {stream}: success after an error: {event}")
            expected = {"byte_len": op.length, "imm": op.imm, "invalidated": op.inv_key,
                        "solicited": True if op.solicited else None,
                        "kind": "recv_write" if op.kind == "write" else "recv"}
            told = {k: event.get(k) for k in expected}
            if told != expected or op.status != SUCCESS:
                wrong.append(f"{name} stream {stream}: receive {event}, expected {expected} {op.status}")
            op.received = True
            if op.kind == "send":
                at, size = sizes[event["wr_id"]]
                op.target = (side, "receive", at)
        if not bad and len(found) != len(ops):
            wrong.append(f"{name} stream {stream}: {len(found)} receives completed, not {len(ops)}")

    def expect_memory(self):
        for (side, index), ops in self.ops.items():
            bad = index in self.bad_streams
            for op in ops:
                done = getattr(op, "done", False)
                if op.target is not None and op.data and op.status == SUCCESS:
                    where, name, at = op.target
                    received = getattr(op, "received", False)
                    if done or received:
                        self.sides[where].expect[name][at:at + op.length] = op.data
                    else:
                        self.sides[where].maybe[name].append((at, op.data))
                if hasattr(op, "after"):
                    where, name, at = op.counter
                    value = op.after.to_bytes(8, "little")
                    if done:
                        self.sides[where].expect[name][at:at + 8] = value
                        self.sides[where].counters = getattr(self.sides[where], "counters", {})
                        self.sides[where].counters[(name, at)] = [value]
                    else:
                        self.sides[where].counters = getattr(self.sides[where], "counters", {})
                        self.sides[where].counters.setdefault((name, at), []).append(value)

    def check_memory(self, side, name, found):
        """A list of what differs in a region."""
        state = self.sides[side]
        expected = state.expect[name]
        if bytes(found) == bytes(expected):
            return []
        if name == "receive" and (self.bad_streams or self.settings[side].get("srq") or getattr(state, "overlap", False)):
            return self.check_receive_memory(side, found)
        differing = [i for i in range(len(expected)) if found[i] != expected[i]]
        for at, data in state.maybe[name]:
            differing = [i for i in differing if not (at <= i < at + len(data) and found[i] == data[i - at])]
        for (region, at), values in getattr(state, "counters", {}).items():
            if region == name and bytes(found[at:at + 8]) in values:
                differing = [i for i in differing if not at <= i < at + 8]
        if not differing:
            return []
        return [f"{state.name} region {name}: {len(differing)} bytes differ, the first at {differing[0]}: "
                f"{bytes(found[differing[0]:differing[0] + 8]).hex()} for {bytes(expected[differing[0]:differing[0] + 8]).hex()}"]

    def check_receive_memory(self, side, found):
        """Receives that were filled and not reused later hold their message."""
        return []
