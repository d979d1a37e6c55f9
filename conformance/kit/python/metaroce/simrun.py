"""One random program between two of these endpoints in simulated time, with a watch over each.

    python3 -m metaroce.simrun 0..200
"""

import random
import sys
import traceback

from .program import MS, Program, config
from .requests import check
from .session import Session
from .settings import S
from .sim import Network, Simulation
from .watch import Watch

PORT = 49300


class SimRun:
    def __init__(self, seed):
        self.seed = seed
        self.rng = random.Random(seed * 31 + 5)
        settings, network = config(seed)
        self.settings = [dict(s) for s in settings]
        self.network = Network(seed, **network)
        self.addresses = [[f"10.0.{n}.{side + 1}" for n in range(self.settings[side].pop("planes") + 1)]
                          for side in (0, 1)]
        self.sessions = [Session(), Session()]
        self.watches = [Watch("ab"[side], self.addresses[side], PORT, exact=True) for side in (0, 1)]

    # Both watches see everything.

    def left(self, *packet):
        for watch in self.watches:
            watch.left(*packet)

    def arrived(self, *packet):
        for watch in self.watches:
            watch.arrived(*packet)

    def ask(self, side, op, **args):
        name, values = check({"op": op, **args})
        session = self.sessions[side]
        return session.open(self.now(), **values) if name == "open" else session.answer(name, values, self.now())

    def now(self):
        return self.sim.now if hasattr(self, "sim") else 1_000_000

    def open(self):
        for side in (1, 0):
            own = dict(self.settings[side])
            args = {n: own[n] for n in ("paths", "streams", "payload_size", "msg_window", "ack_delay_us", "features",
                                        "read_depth", "atomic_depth", "source_ports", "srq", "spray_run")}
            if len(self.addresses[side]) > 1:
                args["planes"] = self.addresses[side][1:]
            self.ask(side, "open", role=["initiator", "acceptor"][side], local=f"{self.addresses[side][0]}:{PORT}",
                     peer=f"{self.addresses[1 - side][0]}:{PORT}", service_id=7,
                     source_port_base=[51000, 52000][side], seed=self.seed * 2 + side, **args)
        endpoints = {a: self.sessions[side].endpoint for side in (0, 1) for a in self.addresses[side]}
        self.sim = Simulation(endpoints, self.network, self)

    def events(self):
        for side in (0, 1):
            session = self.sessions[side]
            session.adopt()
            queue = self.sim.events[id(session.endpoint)]
            for event in queue:
                told = session.told(event)
                if told is None:
                    continue
                state = self.program.sides[side]
                state.events.append(told)
                if told["type"] == "completion":
                    state.completions.append(told)
                elif told["type"] == "established":
                    state.established = told
                elif told["type"] in ("closed", "failed"):
                    state.over = told
            queue.clear()

    def run(self):
        """A list of what is wrong."""
        self.open()
        self.program = Program(self.seed, [], self.settings)
        program, sides = self.program, self.program.sides

        def established():
            self.events()
            return all(s.established or s.over for s in sides)
        if not self.sim.run(established, 30 * S) or any(s.over for s in sides):
            return [f"set-up: {[s.over for s in sides]}"]
        program.streams = [2 * n for n in range(sides[0].established["streams"])]
        program.ops = {(s, n): [] for s in (0, 1) for n in range(len(program.streams))}
        for side in (0, 1):
            for name, size, rights in Program.REGIONS:
                ok = self.ask(side, "register", len=size, fill=0, **rights)
                sides[side].regions[name] = {"mr": ok["mr"], "va": int(ok["va"], 16), "rkey": ok["rkey"]}
                self.sessions[side].memory.regions[ok["mr"]].data[:] = program.contents(side, name, size)
        program.build()
        self.schedule()

        def done():
            self.events()
            return not self.sim.at and self.all_done()
        if not self.sim.run(done, 60 * S):
            return [f"the work is not done; {program.check()[:3]} {[s.over for s in sides]}"]
        self.sim.run(lambda: False, 20 * MS)
        wrong = program.check()
        for side in (0, 1):
            for name, _, _ in Program.REGIONS:
                data = self.sessions[side].memory.regions[sides[side].regions[name]["mr"]].data
                wrong += program.check_memory(side, name, data)
        self.network.dead_ports.clear()
        self.network.dead_addresses.clear()
        self.ask(self.rng.randrange(2), "close", conn=0)

        def over():
            self.events()
            return all(s.over for s in sides)
        if not self.sim.run(over, 30 * S) or any(s.over["type"] != "closed" for s in sides):
            wrong.append(f"close: {[s.over for s in sides]}")
        for watch in self.watches:
            wrong += [f"watch of {watch.name}: {v}" for v in watch.violations[:4]]
        return wrong

    def all_done(self):
        program = self.program
        if any(s.over for s in program.sides):
            return True
        for (side, index), ops in program.ops.items():
            completions = program.sides[side].completions
            if ops and not any(c["wr_id"] == ops[-1].wr_id and not c["kind"].startswith("recv") for c in completions):
                return False
            if index not in program.bad_streams:
                want = sum(op.consumes for op in program.ops[(1 - side, index)])
                have = sum(c["stream"] == program.streams[index] and c["kind"].startswith("recv") for c in completions)
                if have < want:
                    return False
        return True

    def schedule(self):
        rng, program, sim = self.rng, self.program, self.sim
        span = rng.choice([1, 50, 300]) * MS
        kinds = {"send": "post_send", "write": "post_write", "read": "post_read", "fetch_add": "post_fetch_add",
                 "cmp_swap": "post_cmp_swap"}
        for (side, index), ops in program.ops.items():
            at = 0
            for op in ops:
                at += rng.randrange(0, max(1, span // max(1, len(ops))))
                args = dict(op.args)
                if "va" in args:
                    args["va"] = hex(args["va"])
                sim.do(at, lambda s=side, o=op, a=args, n=program.streams[index]: self.ask(
                    s, kinds[o.kind], conn=0, stream=n, wr_id=o.wr_id, **a))
        for side in (0, 1):
            late = rng.choice([0, 0, 1, 200]) * MS
            for index, plan in program.sides[side].receives.items():
                at = rng.randrange(late + 1)
                for wr_id, offset, size in plan:
                    at += rng.randrange(late + 1) if rng.random() < 0.2 else 0
                    args = {"wr_id": wr_id, "mr": program.sides[side].regions["receive"]["mr"], "offset": offset,
                            "len": size}
                    if self.settings[side]["srq"]:
                        sim.do(at, lambda s=side, a=args: self.ask(s, "post_srq_recv", **a))
                    else:
                        sim.do(at, lambda s=side, a=args, n=program.streams[index]: self.ask(
                            s, "post_recv", conn=0, stream=n, **a))
        paths = self.settings[0]["paths"]
        for _ in range(rng.choice([0, 0, 1, 3, 8])):
            sim.do(rng.randrange(2 * span), lambda s=rng.randrange(2), p=rng.randrange(paths): self.move(s, p))
        if "retire" in self.settings[0]["features"]:
            for _ in range(rng.choice([0, 0, 1, 2, 4])):
                sim.do(rng.randrange(2 * span), lambda s=rng.randrange(2), p=rng.randrange(paths): self.retire(s, p))
        # A path that is silent for seven timeouts in a row ends a connection that cannot retire it.
        outages = [100, 700, 2500] if "retire" in self.settings[0]["features"] else [100, 500]
        if paths > 1 and rng.random() < 0.3:
            port = [51000, 52000][rng.randrange(2)] + rng.randrange(paths)
            sim.do(rng.randrange(span), lambda: self.network.dead_ports.add(port))
            sim.do(rng.randrange(span) + rng.choice(outages) * MS, self.network.dead_ports.clear)
        planes = len(self.addresses[0])
        if planes > 1 and paths >= planes and rng.random() < 0.4:
            plane = rng.randrange(planes)
            pair = {self.addresses[0][plane], self.addresses[1][plane]}
            start = rng.randrange(span)
            sim.do(start, lambda: self.network.dead_addresses.update(pair))
            sim.do(start + rng.choice(outages) * MS, self.network.dead_addresses.clear)

    def move(self, side, number):
        c = self.sessions[side].connection
        path = c.send_paths[number]
        port = c.free_port(path)
        if path.alive and port is not None:
            c.now = self.sim.now
            c.move_path(path, port=port)

    def retire(self, side, number):
        c = self.sessions[side].connection
        path = c.send_paths[number]
        if path.alive and c.other_alive(path):
            c.now = self.sim.now
            c.retire(path, 2)


def main():
    first, _, last = sys.argv[1].partition("..")
    failures = 0
    for seed in range(int(first), int(last) if last else int(first) + 1):
        try:
            wrong = SimRun(seed).run()
        except Exception:
            wrong = [traceback.format_exc()]
        if wrong:
            failures += 1
            print(f"FAILED seed {seed}: {'; '.join(wrong[:4])[:2500]}  |  python3 -m metaroce.simrun {seed}", flush=True)
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
