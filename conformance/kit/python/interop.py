#!/usr/bin/env python3
"""Random programs between this endpoint and another implementation behind its adapter, over a bad network.

    python3 interop.py --adapter 'path/to/adapter' --seeds 0..100

The other side runs as a process with real sockets on loopback addresses. This side and the network between them live
in this process: it loses, delays, repeats and marks packets, kills ports and planes, by seed. Completions and every
byte of memory are checked, and a watch holds every packet of the other side against the clauses. A seed that fails
prints one line with the command that runs it alone, and leaves its trace in the folder of `--out`.
"""

import argparse
import gc
import heapq
import itertools
import json
import os
import random
import select
import shlex
import subprocess
import sys
import time
from collections import Counter

from metaroce.program import MS, Program, config
from metaroce.requests import BadRequest, check
from metaroce.session import Session
from metaroce.settings import NEVER
from metaroce.sim import Network
from metaroce.udp import Sockets
from metaroce.watch import Clock, Watch

PORT = 49300
NET = 7   # second number of the loopback addresses, so that several runs have their own
HOLD = 20 * MS   # how long the watch waits for packets that left earlier and are seen later
SOFT = ("move_path", "retire_path", "reset_stream", "withdraw_recv", "deregister", "set_plane", "close", "abort",
        "open_stream", "stats", "post_recv", "post_srq_recv", "post_send", "post_write", "post_read", "post_fetch_add",
        "post_cmp_swap")   # in a program that does what it likes, a state may not allow them
now_ns = time.monotonic_ns


class Failed(Exception):
    """What was expected did not happen."""


class Other:
    """The other implementation, as a process that speaks the adapter protocol."""

    def __init__(self, command):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.fd = self.process.stdout.fileno()
        os.set_blocking(self.fd, False)
        self.partial = b""
        self.queue, self.waiting = [], None
        self.serial = itertools.count(1)
        self.on_events = lambda events: None
        self.polls = True
        self.soft, self.refused = False, []

    def request(self, op, args, on_answer=None):
        self.queue.append((op, args, on_answer))
        self.advance()

    def advance(self):
        if self.waiting is not None:
            return
        if self.queue:
            op, args, on_answer = self.queue.pop(0)
        elif self.polls:
            op, args, on_answer = "poll", {"timeout_ms": 3}, None
        else:
            return
        number = next(self.serial)
        self.waiting = (number, op, args, on_answer)
        self.process.stdin.write((json.dumps({"id": number, "op": op, **args}) + "\n").encode())
        self.process.stdin.flush()

    def read(self):
        try:
            data = os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return
        if not data:
            raise Failed(f"the adapter has ended with {self.process.wait()}")
        *lines, self.partial = (self.partial + data).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            number, op, args, on_answer = self.waiting
            self.waiting = None
            if "error" in answer and (op in SOFT[:2] or self.soft and op in SOFT):
                self.refused.append((op, args, answer["error"]))   # what the state of path or stream does not allow
            elif "error" in answer:
                raise Failed(f"{op} {str(args)[:300]} draws {answer['error']}")
            elif op == "poll":
                self.on_events(answer["ok"]["events"])
            elif on_answer is not None:
                on_answer(answer["ok"])
            self.advance()

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()


class RandomHints:
    """Gives a peer rate hints by chance, 0 among them."""

    def __init__(self, rng):
        self.rng = rng
        self.epoch, self.rate = rng.randrange(256), rng.choice([10, 50, 200, 1000])
        self.at = 0

    def current(self, connection):
        return self.epoch, self.rate

    def deadline(self, connection):
        return self.at

    def tick(self, connection, now):
        if now < self.at:
            return
        self.at = now + self.rng.choice([1, 5, 20]) * MS
        rate = self.rng.choice([0, 3, 10, 50, 200, 1000])
        if rate != self.rate:
            self.rate, self.epoch = rate, (self.epoch + 1) & 255
            connection.send_hint()

    def arrival(self, connection, size, now):
        pass

    asked = lambda self, connection, now: None


class Run:
    """One seed."""

    def __init__(self, seed, other, verbose=False, quick=False):
        self.seed, self.other, self.verbose = seed, other, verbose
        self.rng = random.Random(seed * 31 + 5)
        self.settings, network = config(seed)
        self.our_role = "initiator" if seed % 2 == 0 else "acceptor"
        self.us, self.them = (0, 1) if self.our_role == "initiator" else (1, 0)
        self.network = Network(seed, **network)
        self.dead = set()            # (source address, source port) or source address whose packets vanish
        self.heap, self.serial = [], itertools.count()
        self.actions = []
        self.session = Session()
        self.addresses = {}
        for side in (0, 1):
            self.settings[side] = dict(self.settings[side])
            planes = self.settings[side].pop("planes")
            self.addresses[side] = [f"127.{NET}.{n}.{side + 1}" for n in range(planes + 1)]
        self.watch = Watch("other", self.addresses[self.them], PORT)
        if seed % 5 == 4:
            self.session.giver = RandomHints(random.Random(seed))
            self.watch.hints_given = True
        elif seed % 5 == 3:
            self.capacity = self.rng.choice([5, 20, 100, 1000])
            self.settings[self.them]["capacity_mbps"] = self.watch.capacity = self.capacity
            self.settings[self.them]["hint_interval_us"] = self.rng.choice([100, 1000, 10000])
        self.clock = Clock()
        self.controls = set()
        self.seen = []               # what the watch is still to be told, in order of time
        self.program = None
        self.lateness = 0

    def open_args(self, side):
        own = dict(self.settings[side])
        addresses = self.addresses[side]
        args = {"role": "initiator" if side == 0 else "acceptor", "local": f"{addresses[0]}:{PORT}",
                "peer": f"{self.addresses[1 - side][0]}:{PORT}", "service_id": 7, "paths": own["paths"],
                "streams": own["streams"], "payload_size": own["payload_size"], "msg_window": own["msg_window"],
                "source_port_base": 51000 if side == self.them else 52000, "seed": self.seed + side,
                "ack_delay_us": own["ack_delay_us"]}
        for name in ("features", "read_depth", "atomic_depth", "source_ports", "srq", "spray_run", "capacity_mbps",
                     "hint_interval_us"):
            if name in own:
                args[name] = own[name]
        if len(addresses) > 1:
            args["planes"] = addresses[1:]
        return args

    # The network.

    def serve(self, limit):
        """One turn of everything; waits no longer than until `limit`."""
        session, endpoint = self.session, self.session.endpoint
        now = now_ns()
        more = False
        if endpoint is not None:
            if endpoint.deadline(now) <= now:
                endpoint.tick(now)
            for _ in range(8):
                sent = endpoint.poll_transmit(now_ns())
                if sent is None:
                    break
                self.transmit(True, *sent)
            else:
                more = True
            self.take(self.us, session.take_events())
            session.events = []
        now = now_ns()
        while self.heap and self.heap[0][0] <= now:
            due, _, ours, source, port, destination, ecn, datagram = heapq.heappop(self.heap)
            self.lateness = max(self.lateness, now - due)
            if ours:
                at = now_ns()   # the answer may have left before `send` returns
                self.sockets.send(source, port, destination, ecn, datagram)
                heapq.heappush(self.seen, (at, next(self.serial), self.watch.arrived, source, port, destination,
                                           ecn, datagram))
            else:
                endpoint.handle(datagram, source, destination, ecn, now_ns())
                for _ in range(8):
                    sent = endpoint.poll_transmit(now_ns(), False)
                    if sent is None:
                        break
                    self.transmit(True, *sent)
            now = now_ns()
        while self.actions and self.actions[0][0] <= now:
            heapq.heappop(self.actions)[2]()
        due = min([limit, self.heap[0][0] if self.heap else NEVER, self.actions[0][0] if self.actions else NEVER,
                   endpoint.deadline(now) if endpoint else NEVER])
        wait = 0 if more else max(0, due - now_ns()) / 1e9
        sockets = list(self.sockets.receiving)
        readable, _, _ = select.select(sockets + [self.other.fd], [], [], min(wait, 1))
        if self.other.fd in readable:
            readable.remove(self.other.fd)
            self.other.read()
        for s in readable:
            for _ in range(64):
                taken = self.receive(s)
                if taken is None:
                    break
                data, source, port, own, ecn = taken
                at = self.left_at(data)   # may put what waits in another order
                heapq.heappush(self.seen, (at, next(self.serial), self.watch.left, source, port, own, ecn, data))
                self.transmit(False, source, port, own, ecn, data)

        self.tell_watch(now_ns() - HOLD)

    def left_at(self, data):
        """When a packet left. Sockets of several planes are not read in that order."""
        now = now_ns()
        if self.watch.own is None or len(data) < 20:
            return now
        if data[1] >= 0x60:
            key = data[1:2] + data[8:12]
            request = data[1] in (0x64, 0x6B, 0x6F, 0x72) or data[1] == 0x6E and data[18] == 0   # one that asks
            if request and key in self.controls or data[1] in (0x60, 0x61, 0x62, 0x63, 0x66):
                return now   # a repetition may have an old timestamp
            self.controls.add(key)
        at = self.clock.leave_time(int.from_bytes(data[12:16], "big"), self.watch.own["ts_unit"], now)
        if self.clock.improved:   # what waits has left earlier, too
            self.seen = [(e[0] - self.clock.improved if e[2] == self.watch.left else e[0], *e[1:]) for e in self.seen]
            heapq.heapify(self.seen)
        return at

    def tell_watch(self, until):
        while self.seen and self.seen[0][0] <= until:
            at, _, tell, *packet = heapq.heappop(self.seen)
            tell(at, *packet)

    def receive(self, s):
        try:
            data, ancillary, _, source = s.recvmsg(9216, 64)
        except OSError:
            return None
        ecn = ancillary[0][2][0] & 3 if ancillary else 0
        return data, source[0], source[1], self.sockets.receiving[s], ecn

    def transmit(self, ours, source, port, destination, ecn, datagram):
        if source in self.dead or (source, port) in self.dead or destination in self.dead:
            return
        for at, mark in self.network.arrivals(now_ns(), source, port, ecn):
            if ours and self.network.rng.random() < 0.01:
                port = 52000 + self.network.rng.randrange(self.settings[self.us]["paths"])
            heapq.heappush(self.heap, (at, next(self.serial), ours, source, port, destination, mark, datagram))

    # The parties.

    def ask(self, side, op, args, on_answer=None):
        if side == self.them:
            self.other.request(op, args, on_answer)
            return
        if self.other.soft and op.startswith("post_") and args.get("mr", 1) not in self.session.memory.regions \
                and "inline" not in args:
            self.other.refused.append((op, {**args, "side": side}, "no such region"))
            return
        try:
            name, values = check({"op": op, **args})
            answer = self.session.open(now_ns(), **values) if name == "open" \
                else self.session.answer(name, values, now_ns())
        except BadRequest as error:
            raise Failed(f"own endpoint: {op} {str(args)[:300]} draws {error}") from None
        if on_answer is not None:
            on_answer(answer)

    def take(self, side, events):
        for event in events:
            state = self.sides[side]
            state.events.append(event)
            if self.verbose and event["type"] != "completion":
                print(side, event, file=sys.stderr)
            if event["type"] == "completion":
                state.completions.append(event)
            elif event["type"] == "established":
                state.established = event
            elif event["type"] in ("closed", "failed"):
                state.over = event

    def until(self, condition, seconds, what):
        end = now_ns() + int(seconds * 1e9)
        while not condition():
            if now_ns() >= end:
                raise Failed(f"{what}: not within {seconds} s")
            self.serve(end)

    def at(self, delay_ns, call):
        heapq.heappush(self.actions, (now_ns() + delay_ns, next(self.serial), call))

    # The course.

    def go(self):
        from metaroce.program import Side
        self.sides = [Side("ours" if s == self.us else "other") for s in (0, 1)]
        self.other.on_events = lambda events: self.take(self.them, events)
        self.sockets = Sockets(self.addresses[self.us], PORT)
        try:
            self.course()
        finally:
            self.sockets.close()

    def course(self):
        opened = []
        for side in (1, 0):   # the acceptor first
            self.ask(side, "open", self.open_args(side), opened.append)
            self.until(lambda: len(opened) == 2 - side, 10, "open")
        self.until(lambda: all(s.established or s.over for s in self.sides), 30, "established")
        if any(s.over for s in self.sides):
            raise Failed(f"set-up has failed: {[s.over for s in self.sides]}")
        count = self.sides[0].established["streams"]
        streams = [2 * n for n in range(count)]
        program = self.program = Program(self.seed, streams, self.settings)
        sides = program.sides
        for side in (0, 1):
            for field in ("completions", "events", "established", "name"):
                setattr(sides[side], field, getattr(self.sides[side], field))
        self.sides = sides
        self.register(program)
        program.build()
        self.schedule(program)
        self.finish(program)

    def finish(self, program):
        """Until all is done, and then what must have come of it."""
        try:
            self.until(lambda: self.actions_done() and self.all_done(program), 30, "the work")
        except Failed as error:
            wrong = program.check()
            raise Failed(f"{error}; {wrong[:3]}; over: {[s.over for s in self.sides]}") from None
        self.settle(0.02)
        wrong = program.check()
        for side in (0, 1):
            for name, _, _ in Program.REGIONS:
                wrong += program.check_memory(side, name, self.memory(side, name))
        closer = self.rng.randrange(2)
        self.ask(closer, "close", {"conn": 0})
        self.dead.clear()
        self.until(lambda: all(s.over for s in self.sides), 30, "closed")
        for side in self.sides:
            if side.over["type"] != "closed":
                wrong.append(f"{side.name}: {side.over}")
        self.tell_watch(NEVER)
        wrong += [v for v in self.watch.violations[:5]]
        if wrong:
            raise Failed("; ".join(wrong[:5]))

    def settle(self, seconds):
        end = now_ns() + int(seconds * 1e9)
        while now_ns() < end:
            self.serve(end)

    def register(self, program):
        pending = Counter()
        for side in (0, 1):
            for name, size, rights in Program.REGIONS:
                data = program.contents(side, name, size)

                def registered(ok, side=side, name=name, size=size, data=data):
                    program.sides[side].regions[name] = {"mr": ok["mr"], "va": int(ok["va"], 16), "rkey": ok["rkey"]}
                    self.ask(side, "write_memory", {"mr": ok["mr"], "offset": 0, "hex": data.hex()},
                             lambda ok: pending.subtract(["n"]))
                pending["n"] += 1
                self.ask(side, "register", {"len": size, "fill": 0, **rights}, registered)
        self.until(lambda: pending["n"] == 0, 20, "register")

    def memory(self, side, name):
        got = []
        self.ask(side, "read_memory", {"mr": self.sides[side].regions[name]["mr"], "offset": 0,
                                       "len": dict((n, s) for n, s, _ in Program.REGIONS)[name]}, got.append)
        self.until(lambda: got, 10, "read_memory")
        return bytes.fromhex(got[0]["hex"])

    def actions_done(self):
        return not self.actions and self.other.waiting is not None and not self.other.queue

    def schedule(self, program):
        """When what is posted, and what happens to paths and network meanwhile."""
        rng = self.rng
        span = rng.choice([1, 50, 300]) * MS
        for (side, index), ops in program.ops.items():
            at = 0
            for op in ops:
                at += rng.randrange(0, max(1, span // max(1, len(ops))))
                self.at(at, lambda s=side, i=index, o=op: self.post(s, i, o))
        for side in (0, 1):
            late = rng.choice([0, 0, 1, 200]) * MS
            for index, plan in program.sides[side].receives.items():
                at = rng.randrange(late + 1)
                for wr_id, offset, size in plan:
                    if rng.random() < 0.2:
                        at += rng.randrange(late + 1)
                    self.at(at, lambda s=side, i=index, w=wr_id, o=offset, z=size: self.post_recv(s, i, w, o, z))
        features = self.settings[0]["features"]
        paths = self.settings[0]["paths"]
        for _ in range(rng.choice([0, 0, 1, 3, 8])):
            side, path = rng.randrange(2), rng.randrange(paths)
            ports = self.settings[side]["source_ports"]
            if ports > paths:
                self.at(rng.randrange(2 * span), lambda s=side, p=path: self.move(s, p))
        if "retire" in features and paths > 1:
            for _ in range(rng.choice([0, 0, 1, 2])):
                side, path = rng.randrange(2), rng.randrange(paths)
                self.at(rng.randrange(2 * span), lambda s=side, p=path: self.retire(s, p))
        # A path that is silent for seven timeouts in a row ends a connection that cannot retire it.
        outages = [100, 700, 2500] if "retire" in self.settings[0]["features"] else [100, 500]
        if paths > 1 and rng.random() < 0.3:
            side, path = rng.randrange(2), rng.randrange(paths)
            base = 51000 if side == self.them else 52000
            self.at(rng.randrange(span), lambda: self.dead.add((self.addresses[side][0], base + path)))
            self.at(rng.randrange(span) + rng.choice(outages) * MS, self.dead.clear)
        planes = len(self.addresses[0])
        if planes > 1 and paths >= planes and rng.random() < 0.4:
            plane = rng.randrange(planes)
            pair = {self.addresses[0][plane], self.addresses[1][plane]}
            start = rng.randrange(span)
            self.at(start, lambda: self.dead.update(pair))
            self.at(start + rng.choice(outages) * MS, self.dead.clear)

    def post(self, side, index, op):
        args = {"conn": 0, "stream": self.program.streams[index], "wr_id": op.wr_id, **op.args}
        for name in ("va",):
            if name in args:
                args[name] = hex(args[name])
        self.ask(side, {"send": "post_send", "write": "post_write", "read": "post_read", "fetch_add": "post_fetch_add",
                        "cmp_swap": "post_cmp_swap"}[op.kind], args)

    def post_recv(self, side, index, wr_id, offset, size):
        args = {"wr_id": wr_id, "mr": self.sides[side].regions["receive"]["mr"], "offset": offset, "len": size}
        if self.settings[side]["srq"]:
            self.ask(side, "post_srq_recv", args)
        else:
            self.ask(side, "post_recv", {"conn": 0, "stream": self.program.streams[index], **args})

    def soft(self, side, op, args):
        """Asks for what the state of a path may not allow."""
        try:
            if side == self.us:
                self.ask(side, op, args)
            else:
                self.other.request(op, args)
        except Failed:
            pass

    def move(self, side, path):
        if side == self.us:
            c = self.session.connection
            p = c.send_paths[path]
            port = c.free_port(p)
            if port is not None and p.alive:
                c.now = now_ns()
                c.move_path(p, port=port)
            return
        base, count = 51000, self.settings[side]["source_ports"]

        def stats(number, ports):
            def told(ok):
                ports.append(ok["path"]["src_port"])
                if number + 1 < self.settings[side]["paths"]:
                    self.other.request("stats", {"conn": 0, "path": number + 1}, stats(number + 1, ports))
                else:
                    free = [base + n for n in range(count) if base + n not in ports]
                    if free:
                        self.other.queue.insert(0, ("move_path", {"conn": 0, "path": path, "port": free[0]}, None))
            return told
        self.other.request("stats", {"conn": 0, "path": 0}, stats(0, []))

    def retire(self, side, path):
        if side == self.us:
            c = self.session.connection
            p = c.send_paths[path]
            if p.alive and c.other_alive(p):
                c.now = now_ns()
                c.retire(p, 2)
            return

        def told(ok):
            if ok["path"]["state"] in ("open", "probing"):
                self.other.queue.insert(0, ("retire_path", {"conn": 0, "path": path}, None))
        self.other.request("stats", {"conn": 0, "path": path}, told)

    def all_done(self, program):
        if any(s.over for s in self.sides):
            return True
        for (side, index), ops in program.ops.items():
            stream = program.streams[index]
            if ops:
                last = ops[-1].wr_id
                if not any(c["wr_id"] == last and c["kind"] not in ("recv", "recv_write")
                           for c in self.sides[side].completions):
                    return False
            if index not in program.bad_streams:
                want = sum(op.consumes for op in program.ops[(1 - side, index)])
                have = len([c for c in self.sides[side].completions
                            if c["stream"] == stream and c["kind"] in ("recv", "recv_write")])
                if have < want:
                    return False
        return True

    def trace(self, path):
        with open(path, "w") as f:
            f.write(f"{self.settings} {self.network.__dict__} our role {self.our_role}\n")
            for refused in self.other.refused:
                f.write(f"refused {refused}\n")
            for violation in self.watch.violations:
                f.write(violation + "\n")
            for entry in self.watch.log:
                f.write(" ".join(map(str, entry)) + "\n")
            for side in self.sides:
                for event in side.events:
                    f.write(f"{side.name} {event}\n")


class Chaos(Run):
    """A seed in which programs do what they like: streams are reset, regions and receives taken away, the end comes
    in the middle of work. What must hold even so is checked."""

    def __init__(self, *args):
        super().__init__(*args)
        rng = random.Random(self.seed * 13 + 7)
        for side in (0, 1):
            self.settings[side]["rnr_retries"] = rng.choice([7, 7, 0, 2])

    def open_args(self, side):
        return {**super().open_args(side), "rnr_retries": self.settings[side]["rnr_retries"]}

    def post(self, side, index, op):
        if not self.sides[side].over:
            op.posted = True
            super().post(side, index, op)

    def post_recv(self, side, *args):
        if not self.sides[side].over:
            super().post_recv(side, *args)

    def schedule(self, program):
        super().schedule(program)
        rng = random.Random(self.seed * 17 + 3)
        span = 300 * MS
        program.bad_streams = set(range(len(program.streams)))

        def some(chance, call, *args):
            if rng.random() < chance:
                self.at(rng.randrange(span), lambda: call(*args))
        for _ in range(3):
            side, index = rng.randrange(2), rng.randrange(len(program.streams))
            some(0.3, self.soft, side, "reset_stream", {"conn": 0, "stream": program.streams[index]})
            some(0.3, self.withdraw, side, index, rng.randrange(1000))
            some(0.2, self.more, side, rng.randrange(1000))
        side = rng.randrange(2)
        some(0.3, self.take_away, side, rng.choice(["target", "local", "source", "receive"]))
        if len(self.addresses[0]) > 1:
            some(0.3, self.soft, side, "set_plane", {"conn": 0, "plane": 0, "up": False})
            some(0.3, self.soft, side, "set_plane", {"conn": 0, "plane": 1, "up": False})
            some(0.5, self.soft, side, "set_plane", {"conn": 0, "plane": 1, "up": True})
        some(0.3, self.soft, rng.randrange(2), "close", {"conn": 0})
        some(0.15, self.soft, rng.randrange(2), "abort", {"conn": 0})
        self.silence = rng.random() < 0.05
        if self.silence:
            self.at(rng.randrange(span), lambda: self.dead.update(self.addresses[self.us]))

    def soft(self, side, op, args):
        if not self.sides[side].over:
            super().soft(side, op, args)

    def withdraw(self, side, index, number):
        plan = self.program.sides[side].receives.get(index)
        if plan and not self.settings[side]["srq"]:
            self.soft(side, "withdraw_recv", {"conn": 0, "stream": self.program.streams[index],
                                              "wr_id": plan[number % len(plan)][0]})

    def take_away(self, side, name):
        region = self.sides[side].regions[name]
        region["gone"] = True
        self.soft(side, "deregister", {"mr": region["mr"]})

    def more(self, side, number):
        """Opens a further stream and works on it."""
        program = self.program

        def opened(ok):
            index = len(program.streams)
            program.streams.append(ok["stream"])
            program.bad_streams.add(index)
            for s in (0, 1):
                program.ops[(s, index)] = []
                program.sides[s].receives.setdefault(index, [])
            for n in range(4):
                op = program.good(side, index, 2_000_000 + index * 100 + n)
                if op is not None and not op.consumes:
                    program.ops[(side, index)].append(op)
                    self.post(side, index, op)
        if side == self.us:
            c = self.session.connection
            if not c.over:
                c.now = now_ns()
                stream = c.open_stream()
                if stream is not None:
                    opened({"stream": stream.number})
        else:
            self.other.request("open_stream", {"conn": 0}, opened)

    def retire(self, side, path):
        if not self.sides[side].over:
            super().retire(side, path)

    def move(self, side, path):
        if not self.sides[side].over:
            super().move(side, path)

    def memory(self, side, name):
        if self.sides[side].regions[name].get("gone"):
            return bytes(self.sides[side].expect[name])
        return super().memory(side, name)

    def finish(self, program):
        self.settle(0.7)
        self.until(self.actions_done, 10, "actions")
        for side in (0, 1):
            self.soft(side, "close", {"conn": 0})
        if not self.silence:
            self.dead.clear()
        if any(s.over for s in self.sides) or self.rng.random() < 0.5 or True:
            end = now_ns() + 8_000_000_000
            while not all(s.over for s in self.sides) and now_ns() < end:
                self.serve(end)
            for side in (0, 1):
                self.soft(side, "abort", {"conn": 0})
        self.until(lambda: all(s.over for s in self.sides), 30, "the end")
        self.settle(0.02)
        # What is posted to a connection that is closing is refused; it never becomes work.
        refused = {(args.get("side", self.them), args["wr_id"]) for op, args, _ in self.other.refused if op.startswith("post_")}
        wrong = program.check_chaos(refused)
        for side in (0, 1):
            for name, _, _ in Program.REGIONS:
                wrong += program.check_memory(side, name, self.memory(side, name))
        self.tell_watch(NEVER)
        wrong += self.watch.violations[:5]
        if wrong:
            raise Failed("; ".join(wrong[:5]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--adapter", required=True)
    parser.add_argument("--seeds", default="0..20", help="FIRST..LAST (not with it), or one seed")
    parser.add_argument("--out", default="interop-failures")
    parser.add_argument("--chaos", action="store_true", help="every seed does what it likes, not one of three")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9, help="no new seed after this time")
    parser.add_argument("--net", type=int, default=NET, help="loopback addresses 127.NET.x.x")
    options = parser.parse_args()
    globals()["NET"] = options.net
    first, _, last = options.seeds.partition("..")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    gc.disable()
    start, failures, counts, done, packets = time.time(), 0, Counter(), 0, 0
    other = None
    for seed in seeds:
        if time.time() - start > options.seconds:
            break
        if other is None or done % 20 == 0:
            if other:
                other.end()
            other = Other(options.adapter)
        chaos = options.chaos or seed % 3 == 2
        run = (Chaos if chaos else Run)(seed, other, options.verbose)
        other.soft, other.refused = chaos, []
        text = None
        try:
            run.go()
        except Failed as error:
            text = str(error)
        if run.watch.violations and (text is None or run.watch.violations[0] not in text):
            text = f"{text or ''} WATCH {run.watch.violations[:3]}"
        if text is not None:
            failures += 1
            os.makedirs(options.out, exist_ok=True)
            run.trace(os.path.join(options.out, f"seed-{seed}.txt"))
            print(f"FAILED seed {seed} ({run.our_role} here): {text[:1500]}  |  python3 interop.py --adapter "
                  f"{shlex.quote(options.adapter)} --seeds {seed}", flush=True)
        elif options.verbose:
            print(f"seed {seed} good, {run.network.count} packets, late by {run.lateness / MS:.1f} ms", file=sys.stderr)
        counts.update(run.watch.counts)
        for suspect in run.watch.suspect[:3]:
            print(f"SUSPECT seed {seed}: {suspect[:600]}", flush=True)
        if run.watch.suspect:
            os.makedirs(options.out, exist_ok=True)
            run.trace(os.path.join(options.out, f"suspect-{seed}.txt"))
        packets += run.network.count
        done += 1
        if text is not None:
            other.end()
            other = None
        else:
            reset = []
            other.polls = False
            other.request("reset", {}, reset.append)
            while not reset:
                select.select([other.fd], [], [], 1)
                other.read()
            other.polls = True
        gc.collect()
    if other:
        other.end()
    print(f"{done} seeds, {failures} failed, {packets} packets, {time.time() - start:.0f} s; checks of the watch: "
          f"{dict(sorted(counts.items()))}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
