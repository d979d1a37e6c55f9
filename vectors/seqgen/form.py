"""Rules of form: what must hold of a sequence whatever it says."""

from . import judge, wire


def problems(sequence):
    """What is wrong with the form of one sequence, in words."""
    steps = sequence["steps"]
    times = [step["at_ns"] for step in steps]
    if times != sorted(times):
        yield "the steps are not in order of time"
    if not steps or "end" not in steps[-1].get("what", {}):
        yield "the last step is not the end"
    for n, step in enumerate(steps):
        if step["kind"] == "packet":
            for problem in packet_problems(sequence, step):
                yield f"step {n}: {problem}"
    yield from arrival_problems(steps)
    known = wire.clauses()
    broken = [entry["clause"] for entry in sequence["violates"]]
    for clause in sequence["satisfies"] + broken:
        if clause not in known:
            yield f"no clause {clause}"
    if set(broken) & set(sequence["satisfies"]):
        yield "a clause is in both lists"
    if not sequence["satisfies"] or bool(broken) != ("base" in sequence):
        yield "a right sequence satisfies something, a wrong one names its base and what it breaks"
    yield from verdict_problems(sequence)


def packet_problems(sequence, step):
    connection, side = sequence["connections"][step.get("connection", 0)], step["from"]
    datagram = bytes.fromhex(step["datagram"])
    if wire.decode(datagram) != step["fields"]:
        yield "the fields are not those of the datagram"
    plane = step.get("plane", 0)
    to_plane = step.get("to_plane", plane)
    if max(plane, to_plane) > min(len(connection[end]["planes"]) for end in wire.SIDES):
        yield "there is no such plane"
        return
    if wire.encode(connection, side, step["fields"], plane, to_plane) != datagram:
        yield "the datagram is not that of the fields"
    if wire.NAME[datagram[1]] != step["packet"]:
        yield "the packet has another name"
    own = connection[side]
    if step["fields"]["CBH"]["timestamp"] != (own["clock_ns"] + step["at_ns"]) // own["ts_unit_ns"] % 2**32:
        if not any(entry["clause"] == "PKT-017" for entry in sequence["violates"]):
            yield "the timestamp is not the clock at the time of sending"


def arrival_problems(steps):
    """Nothing arrives before it was sent; a route keeps its order but for what is said to be delayed; no two arrivals meet."""
    routes, seen = {}, {}
    for n, step in enumerate(steps):
        if step["kind"] != "packet" or step["fate"] == "lost":
            continue
        (kind, times), = step["fate"].items()
        for at in times.values():
            if at <= step["at_ns"]:
                yield f"step {n}: arrives before it was sent"
            place = wire.other(step["from"]), at, step.get("connection", 0) if step["from"] == "acceptor" else 0
            if place in seen:
                yield f"steps {seen[place]} and {n} arrive at the same instant"
            seen[place] = n
        if kind == "marked" and step["ecn"] == "not_ect":
            yield f"step {n}: only capable packets can be marked"
        if kind == "duplicated" and times["again_ns"] <= times["arrives_ns"]:
            yield f"step {n}: the second copy comes first"
        route = step.get("connection", 0), step["from"], step.get("plane", 0), step["source_port"]
        if kind == "delayed":
            continue
        if times["arrives_ns"] <= routes.get(route, -1):
            yield f"step {n}: overtakes on its route"
        routes[route] = times["arrives_ns"]


def verdict_problems(sequence):
    exercised, broken = judge.judge(sequence)
    said = {entry["clause"]: entry["step"] for entry in sequence["violates"]}
    for clause, step in sorted(broken.items()):
        if clause not in said:
            yield f"step {step} breaks {clause}, which is not declared"
        elif said[clause] != step:
            yield f"{clause} shows at step {step}, not {said[clause]}"
    for clause in said:
        if clause not in broken:
            yield f"{clause} is declared broken but is not"
    for clause in sequence["satisfies"]:
        if clause not in exercised:
            yield f"{clause} is declared kept but not exercised"
