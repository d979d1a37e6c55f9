"""Turns a scene into the sequence of the files: acknowledgments worked out, time stamped, sealed, in order of time."""

from . import wire
from .wire import RTX, RTXE


def finish(scene):
    """The sequence as it stands in the file."""
    steps = sorted(scene.steps, key=lambda step: step.at)
    seen = {}
    for step in steps:
        if not hasattr(step, "fields"):
            continue
        if step.ack:
            acknowledge(scene, steps, step, seen)
        stamp(scene, step)
        for layer, values in step.override.items():
            step.fields[layer].update(values)
    index = {id(step): n for n, step in enumerate(steps)}
    sequence = {"id": scene.id, "title": scene.title, "shows": scene.shows}
    if scene.base:
        sequence.update(base=scene.base, because=scene.because)
    sequence.update(connections=scene.connections, memory={"regions": scene.regions, "receives": scene.receives})
    sequence["satisfies"] = sorted(set(scene.satisfies))
    sequence["violates"] = [{"clause": clause, "step": index[id(scene.tags[tag])]} for clause, tag in scene.violates]
    sequence["steps"] = [form(scene, step) for step in steps]
    return sequence


def form(scene, step):
    head = {"at_ns": step.at, "kind": "packet" if hasattr(step, "fields") else "event"}
    if step.connection:
        head["connection"] = step.connection
    if not hasattr(step, "fields"):
        return head | {"side": step.side, "what": step.what}
    fields, connection = step.fields, scene.connections[step.connection]
    fate = "lost" if "lost" in step.fate else step.fate
    planes = {"plane": step.plane} if step.plane else {}
    if step.to_plane != step.plane:
        planes["to_plane"] = step.to_plane
    return head | {
        "from": step.side, **planes, "source_port": step.port, "ecn": step.ecn, "packet": wire.NAME[fields["CBH"]["opcode"]],
        "datagram": wire.encode(connection, step.side, fields, step.plane, step.to_plane).hex(), "fields": fields, "fate": fate,
    }


def stamp(scene, step):
    own = scene.connections[step.connection][step.side]
    step.fields["CBH"]["timestamp"] = (own["clock_ns"] + step.at) // own["ts_unit_ns"] % 2**32


def arrivals(steps, side, connection, path, epoch, until):
    """What has come to `side` on a path, by time: (time, step, whether marked)."""
    found = []
    for step in steps:
        if not hasattr(step, "fields") or step.side == side or step.connection != connection or step.refused:
            continue
        name = wire.NAME[step.fields["CBH"]["opcode"]]
        if name not in wire.DATA or (step.cbh["path"], step.cbh["epoch"]) != (path, epoch):
            continue
        for kind, times in step.fate.items():
            for at in (times or {}).values():
                if at <= until:
                    found.append((at, step, kind == "marked"))
    return sorted(found, key=lambda entry: entry[0])


def state(scene, steps, step):
    """CumPSN, offsets in the vector, CE and ECT count, and the arrivals, at the time of an acknowledgment."""
    connection = scene.connections[step.connection]
    path, epoch = step.ack
    start = getattr(scene, "starts", {}).get((step.connection, wire.other(step.side), path, epoch))
    isn = connection[wire.other(step.side)]["isn"] if start is None else start
    got, ce, ect, duplicates, last = set(), 0, 0, [], None
    come = arrivals(steps, step.side, step.connection, path, epoch, step.at)
    for at, packet, marked in come:
        psn = packet.cbh["psn"]
        if psn in got:
            duplicates.append(at)
        else:
            ce, ect = ce + marked, ect + (not marked and packet.ecn != "not_ect")
        got.add(psn)
        last = at, packet
    cum = (isn - 1) % 2**32
    while (cum + 1) % 2**32 in got:
        cum = (cum + 1) % 2**32
    beyond = sorted(wire.ahead(psn, cum) - 1 for psn in got if wire.ahead(psn, cum) > 0)
    return cum, beyond, ce, ect, duplicates, last


def acknowledge(scene, steps, step, seen):
    """Fills in an acknowledgment or the answer to a probe."""
    cum, beyond, ce, ect, duplicates, last = state(scene, steps, step)
    path, epoch = step.ack
    epoch_now, hint = scene.hint(step) if hasattr(scene, "hint") else (0, wire.NO_HINT)
    if hasattr(step, "probe"):
        probe = step.probe.fields
        step.fields["PATH_PROBE_ACK"].update(
            timestamp_echo=probe["CBH"]["timestamp"], cum_psn=cum, highest_psn=probe["PATH_PROBE"]["highest_psn"],
            hint_epoch=epoch_now, rate_hint=hint, sack=wire.vector(beyond))
        return
    if "PATH_RETIRED" in step.fields:
        step.fields["PATH_RETIRED"].update(cum_psn=cum, sack=wire.vector(beyond))
        return
    since = seen.get((step.connection, step.side, path, epoch), -1)
    seen[step.connection, step.side, path, epoch] = step.at
    at, trigger = last
    delay = (step.at - at) // 64
    own = step.fields["CBH"]
    plain = not beyond or getattr(step, "force", None) == "ACK"
    fields = wire.blank("ACK" if plain else "ACK_SACK")
    fields["CBH"].update(path=path, epoch=epoch, psn=cum, dcid=own["dcid"])
    fields["CBH"]["flags"] = wire.RTXE if trigger.cbh["flags"] & RTX else 0
    stream = trigger.fields["MSGH"]["stream"]
    flags = wire.ECHO_VALID if delay < 0xFFFF else 0
    if any(at > since for at in duplicates):
        flags |= wire.DUPLICATE_SEEN
    fields["ACK"].update(
        timestamp_echo=trigger.cbh["timestamp"], ack_delay=min(delay, 0xFFFF), ack_flags=flags, ce_count=ce,
        ect_count=ect, hint_epoch=epoch_now, rate_hint=hint, stream=stream, rq_limit=limit(scene, steps, step, stream))
    if not plain:
        fields["ACK_SACK"]["sack"] = wire.vector(beyond)
    step.fields = fields


def limit(scene, steps, step, stream):
    """RqLimit of the side that acknowledges: the first one and what was posted since."""
    for opened in scene.connections[step.connection]["open_streams"]:
        if opened["stream"] == stream:
            first = opened["rq_limit"][step.side]
            break
    else:
        first = scene.opened[stream][step.side]
    posted = sum(
        1 for s in steps
        if s.at <= step.at and s.side == step.side and s.connection == step.connection
        and s.__dict__.get("what", {}).get("post_recv", {}).get("stream") == stream
        and wire.ahead(s.what["post_recv"]["rqsn"], first, 16) >= 0
    )
    return (first + posted) % 0x10000
