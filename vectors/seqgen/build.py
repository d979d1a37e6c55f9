"""A small language for sequences: a scene says what is sent when and what becomes of it; bytes follow from that.

What the receiver's acknowledgments say is worked out from the arrivals when the scene is finished, so that a change of a
scene carries through. The judge does not use any of this: it reads the finished sequences only.
"""

import copy

from . import wire
from .wire import EOM, IMM, INV, RESP, RTX, SOM, wide

US = 1_000
MS = 1_000_000
P = 256
VA = 0x0000_7F00_0000_1000
RKEY = 0x00C0FFEE
OK = "IBV_WC_SUCCESS"


def pattern(seed, length):
    """Payload in which every misplaced byte shows."""
    return bytes((seed * 41 + i * 7 + i // 256) % 256 for i in range(length))


class Message:
    """One piece of work of the sending side and its numbers."""

    def __init__(self, side, op, stream, wr, msn, rqsn, data, connection, **extra):
        self.side, self.op, self.stream, self.wr, self.msn, self.rqsn = side, op, stream, wr, msn, rqsn
        self.data, self.connection, self.extra = data, connection, extra

    def pieces(self):
        return max(1, -(-len(self.data) // P))

    def fields(self, k):
        """Everything of piece `k` but path, PSN and timestamp."""
        fields = wire.blank(self.op)
        offset, length = k * P, len(self.data)
        payload = self.data[offset : offset + P] if self.op in wire.PAYLOAD else b""
        last = offset + len(payload) >= length or self.op not in wire.PAYLOAD
        mflags = (SOM if offset == 0 else 0) | (EOM if last else 0)
        mflags |= {"SEND_IMM": IMM, "WRITE_IMM": IMM, "SEND_INV": INV, "READ_RESP": RESP, "ATOMIC_RESP": RESP}.get(self.op, 0)
        fields["MSGH"] = dict(stream=self.stream, rqsn=self.rqsn, mflags=mflags, msn=self.msn, offset=offset, len=length)
        if self.op in wire.PAYLOAD:
            fields["payload"]["payload"] = payload.hex()
            fields["CBH"]["pad"] = -len(payload) % 4
        for layer in fields.keys() - {"CBH", "MSGH", "payload"}:
            for name in fields[layer].keys() & self.extra.keys():
                fields[layer][name] = self.extra[name]
        return fields


class Step:
    """A packet (with `fields`) or an event (with `what`), at a time and a side."""

    def __init__(self, at, side, connection, **rest):
        self.at, self.side, self.connection = at, side, connection
        self.__dict__.update(rest)

    @property
    def arrives(self):
        return next(iter(self.fate.values()))["arrives_ns"]

    @property
    def cbh(self):
        return self.fields["CBH"]


class Scene:
    """A sequence in the making."""

    def __init__(self, id, title, shows, **options):
        self.id, self.title, self.shows = id, title, shows
        self.connections, self.regions, self.receives, self.steps, self.tags = [], [], [], [], {}
        self.satisfies, self.violates, self.base, self.because = [], [], None, None
        self.delay = {}
        self.connect(**options)

    # --- the ground ---------------------------------------------------------------------------------------------------

    def connect(self, *, paths=1, streams=(0,), isn=(0x1000, 0x2000), ack_delay=(8, 8), window=16, first_msn=1,
                first_rqsn=0, limits=None, features=(), established=True, depth=(0, 0), atomics=(0, 0), hints=(0, 0),
                hint_interval=(0, 0), planes=((), ()), address="192.0.2.1", cids=(0x0A0A0A, 0x0B0B0B), ports=(50000, 51000)):
        """Adds a connection; `limits` is the first RqLimit of both sides on every stream."""
        connection = {"established": established}
        for n, side in enumerate(wire.SIDES):
            connection[side] = {
                "address": (address, "192.0.2.2")[n], "port": wire.SERVICE_PORT, "cid": cids[n], "isn": isn[n],
                "clock_ns": (1_000_000_000, 3_000_000_000)[n], "ts_unit_ns": 1, "ack_delay_us": ack_delay[n],
                "source_ports": [ports[n] + path for path in range(paths)], "planes": list(planes[n]),
                "read_depth": depth[n], "atomic_depth": atomics[n], "hint_support": hints[n],
                "hint_interval_us": hint_interval[n],
            }
        limits = limits or (first_rqsn, first_rqsn)
        connection.update(paths=paths, streams=max(1, len(streams)), msg_window=window, payload_size=P, service_id=7,
                          features=list(features))
        connection["open_streams"] = [
            {"stream": s, "first_msn": first_msn, "first_rqsn": first_rqsn, "rq_limit": dict(zip(wire.SIDES, limits))}
            for s in streams
        ] if established else []
        self.connections.append(connection)
        self._next = getattr(self, "_next", {})
        for n, side in enumerate(wire.SIDES):
            for stream in streams:
                key = len(self.connections) - 1, side, stream
                self._next[key] = {"msn": first_msn, "rqsn": first_rqsn}
        return len(self.connections) - 1

    def region(self, side, va=VA, length=0x4000, rkey=RKEY, allow=("remote_write",), connection=0, data=None):
        region = {"side": side, "va": wide(va), "rkey": rkey, "length": length, "allow": list(allow)}
        if connection:
            region["connection"] = connection
        if data is not None:
            region["holds"] = data.hex()
        self.regions.append(region)
        return region

    def receive(self, side, stream, rqsn, length, wr, va):
        """A receive that is posted before the sequence begins; it counts in the first RqLimit."""
        self.receives.append({"side": side, "stream": stream, "rqsn": rqsn, "length": length, "wr_id": wr, "va": wide(va)})

    # --- steps --------------------------------------------------------------------------------------------------------

    def add(self, step, tag=None):
        self.steps.append(step)
        if tag:
            assert tag not in self.tags, tag
            self.tags[tag] = step
        return step

    def __getitem__(self, tag):
        return self.tags[tag]

    def event(self, at, side, kind, tag=None, connection=0, **values):
        return self.add(Step(at, side, connection, what={kind: values}), tag)

    def post(self, at, side, op, wr, data, stream=0, connection=0, tag=None, **extra):
        """The application posts work; returns its message. A Read's `data` are the bytes that it asks for."""
        key = connection, side, stream
        numbers = self._next[key]
        rqsn = 0
        if op in wire.RECEIVES:
            rqsn, numbers["rqsn"] = numbers["rqsn"], (numbers["rqsn"] + 1) % 0x10000
        message = Message(side, op, stream, wr, numbers["msn"], rqsn, data, connection, **extra)
        numbers["msn"] = (numbers["msn"] + 1) % 0x1000000
        values = {"stream": stream, "wr_id": wr, "length": len(data)}
        for name in ("va", "rkey", "local", "imm", "swap_or_add", "compare"):
            if name in extra:
                values[name] = extra[name]
        if op == "SEND_INV":
            values["invalidate"] = values.pop("rkey")
        self.event(at, side, "post_" + op.lower().replace("read_req", "read"), tag, connection, **values)
        return message

    def write(self, at, wr, length, va=VA, side="initiator", rkey=RKEY, seed=None, **more):
        return self.post(at, side, "WRITE", wr, pattern(seed or wr, length), va=wide(va), rkey=rkey, **more)

    def send(self, at, wr, length, side="initiator", **more):
        return self.post(at, side, "SEND", wr, pattern(wr, length), **more)

    def reply(self, request, op, data, **extra):
        """The response to a Read or atomic request, as a message of the other side."""
        return Message(wire.other(request.side), op, request.stream, None, request.msn, 0, data, request.connection, **extra)

    def port(self, connection, side, path):
        return self.connections[connection][side]["source_ports"][path]

    def fate(self, at, path, lost=False, ce=False, again=None, late=None, delay=None):
        if lost:
            return {"lost": None}
        arrives = at + (delay if delay is not None else self.delay.get(path, 20 * US))
        if ce:
            return {"marked": {"arrives_ns": arrives}}
        if again:
            return {"duplicated": {"arrives_ns": arrives, "again_ns": again}}
        if late:
            return {"delayed": {"arrives_ns": late}}
        return {"delivered": {"arrives_ns": arrives}}

    def packet(self, at, side, fields, path, ecn, tag=None, connection=0, port=None, port_path=None, plane=None, to_plane=None, **fate):
        """Any packet; the route is that of `port_path`, or of the path itself, and so is the plane where none is named."""
        route = path if port_path is None else port_path
        if plane is None:
            plane = route % (1 + len(self.connections[connection][side]["planes"]))
        step = Step(at, side, connection, fields=fields, ecn=ecn, fate=self.fate(at, route, **fate),
                    port=port or self.port(connection, side, route), ack=None,
                    plane=plane, to_plane=plane if to_plane is None else to_plane, refused=False, override={})
        fields["CBH"]["dcid"] = self.connections[connection][wire.other(side)]["cid"]
        return self.add(step, tag)

    def tx(self, at, message, k=0, path=0, flags=0, psn=None, epoch=0, **rest):
        """Sends piece `k` of a message as a new packet."""
        fields = message.fields(k)
        key = "psn", message.connection, message.side, path, epoch
        if psn is None:
            psn = self._next.get(key, self.connections[message.connection][message.side]["isn"])
        self._next[key] = (psn + 1) % 2**32
        fields["CBH"].update(path=path, psn=psn, flags=flags, epoch=epoch)
        return self.packet(at, message.side, fields, path, "ect0", connection=message.connection, **rest)

    def fill(self, at, side, path, psn, stream, flags=0, epoch=0, **rest):
        """Takes `psn` with a FILL."""
        fields = wire.blank("FILL")
        fields["MSGH"]["stream"] = stream
        fields["CBH"].update(path=path, psn=psn, flags=flags, epoch=epoch)
        return self.packet(at, side, fields, path, "ect0", **rest)

    def rtx(self, at, first, flags=0, **rest):
        """Sends a packet again."""
        fields = copy.deepcopy(first.fields)
        fields["CBH"]["flags"] = RTX | flags
        rest.setdefault("port", first.port)
        return self.packet(at, first.side, fields, first.cbh["path"], "ect0", connection=first.connection, **rest)

    def ack(self, at, side, path=0, epoch=0, tag=None, connection=0, **rest):
        """An acknowledgment of what has arrived by then; `lie` puts other values into it."""
        lie = rest.pop("lie", {})
        step = self.packet(at, side, wire.blank("ACK"), path, "not_ect", tag, connection, **rest)
        step.ack, step.override = (path, epoch), lie
        return step

    def control(self, at, side, name, transaction, body=None, path=0, epoch=0, tag=None, connection=0, **rest):
        fields = wire.blank(name)
        fields["CBH"].update(psn=transaction, path=path, epoch=epoch)
        for layer, values in (body or {}).items():
            unknown = values.keys() - fields[layer].keys()
            assert not unknown, unknown
            fields[layer].update(values)
        return self.packet(at, side, fields, path, "not_ect", tag, connection, **rest)

    def probe(self, at, side, path, transaction, highest, epoch=0, **rest):
        return self.control(at, side, "PATH_PROBE", transaction, {"PATH_PROBE": {"highest_psn": highest}}, path, epoch, **rest)

    def probe_ack(self, at, probe, **rest):
        """Answers a probe with what has arrived by then."""
        step = self.control(at, wire.other(probe.side), "PATH_PROBE_ACK", probe.cbh["psn"], {}, probe.cbh["path"],
                            probe.cbh["epoch"], connection=probe.connection, **rest)
        step.ack, step.probe = (probe.cbh["path"], probe.cbh["epoch"]), probe
        return step

    def nak(self, at, offender, code, scope, detail=0, **rest):
        cbh, msgh = offender.cbh, offender.fields["MSGH"]
        fields = wire.blank("NAK")
        fields["CBH"].update(path=cbh["path"], epoch=cbh["epoch"])
        fields["NAK"].update(code=code, scope=scope, stream=msgh["stream"], msn=msgh["msn"], offending_psn=cbh["psn"], detail=detail)
        return self.packet(at, wire.other(offender.side), fields, cbh["path"], "not_ect", connection=offender.connection, **rest)

    def done(self, at, side, wr, work, length, stream=0, status=OK, tag=None, connection=0, **more):
        return self.event(at, side, "completion", tag, connection, stream=stream, wr_id=wr, work=work, status=status,
                          byte_len=length, **more)

    def finished(self, at, message, status=OK, tag=None, **more):
        """The sender reports its work as done."""
        work = message.op.lower().replace("read_req", "read").replace("_imm", "").replace("_inv", "")
        length = len(message.data) if status == OK else 0
        return self.done(at, message.side, message.wr, work, length, message.stream, status, tag, message.connection, **more)

    def look(self, at, side, va, data, tag=None, connection=0):
        """What is in memory at that time."""
        return self.event(at, side, "memory", tag, connection, va=wide(va), hex=data.hex())

    # --- variants -----------------------------------------------------------------------------------------------------

    def keeps(self, *clauses):
        self.satisfies += clauses

    def wrong(self, suffix, because, violates, edit, drop=()):
        """A copy with one thing changed; `violates` pairs each clause with the tag of the step at which it shows."""
        scene = copy.deepcopy(self)
        scene.id, scene.base, scene.because = f"{self.id}--{suffix}", self.id, because
        edit(scene)
        scene.violates = list(violates.items())
        scene.satisfies = [c for c in scene.satisfies if c not in violates and c not in drop]
        return scene

    def then(self, edit):
        """A further change to a copy."""
        edit(self)
        return self

    def drop(self, *tags):
        for tag in tags:
            self.steps.remove(self.tags.pop(tag))

    def move(self, tag, at):
        """Lets a step happen at another time; a packet travels as long as before."""
        step = self.tags[tag]
        by, step.at = at - step.at, at
        for value in getattr(step, "fate", {}).values():
            for name in value or {}:
                value[name] += by

    def plain(self, tag):
        """Sends an acknowledgment without its vector."""
        self.tags[tag].force = "ACK"

    def shift(self, by, *tags):
        for tag in tags:
            self.move(tag, self.tags[tag].at + by)

    def cut(self, tag, end):
        """Lets the sequence end after this step, at the time `end`."""
        last = self.tags[tag].at
        gone = [step for step in self.steps if step.at > last]
        self.steps = [step for step in self.steps if step.at <= last]
        self.tags = {tag: step for tag, step in self.tags.items() if step not in gone}
        self.end(end)

    def after(self, at):
        """The first step after a time, where the lack of something shows."""
        return min((step for step in self.steps if step.at > at), key=lambda step: step.at)

    def end(self, at):
        """The observer stops looking."""
        if "end" in self.tags:
            gone = self.tags.pop("end")
            self.steps = [step for step in self.steps if step is not gone]
        return self.event(at, "initiator", "end", "end")

    def set(self, tag, layer, **values):
        """Writes fields of a packet; of an acknowledgment after it has been worked out."""
        step = self.tags[tag]
        if step.ack:
            step.override.setdefault(layer, {}).update(values)
        else:
            step.fields[layer].update(values)
