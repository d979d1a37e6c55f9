"""The adapter protocol over an `Endpoint`: requests to calls, events to JSON. No I/O."""

import hashlib

from . import wire
from .endpoint import Endpoint
from .memory import Memory
from .requests import OPEN_FURTHER, BadRequest
from .settings import Settings
from .work import Receive, Work
import random

MAX_PIECE = 3 << 20


class Session:
    """What a harness has asked for between two resets."""

    def __init__(self):
        self.memory = Memory(random.Random())
        self.endpoint = None
        self.connection = None     # the one with number 0
        self.further = False       # whether the harness has asked for more than Send and Write
        self.events = []
        self.giver = None          # of rate hints, for tests

    def answer(self, op, args, now):
        """The `ok` of a request; `open`, `poll` and `reset` are the adapter's affair."""
        return getattr(self, "do_" + op)(now=now, **args)

    def do_hello(self, now, protocol):
        if protocol != 1:
            raise BadRequest("bad_protocol", "this adapter speaks protocol 1")
        return {"protocol": 1, "name": "metaroce-python", "version": "0.1.0", "profile": "metaroce-open 0.1"}

    def do_capabilities(self, now):
        return {"roles": ["initiator", "acceptor"], "operations": ["send", "write"], "max_paths": 256,
                "max_streams": 16384, "payload_sizes": [256, 512, 1024, 2048, 4096, 8192], "initial_psn": True,
                "counters": sorted(self.counters()),
                "further_operations": ["read", "cmp_swap", "fetch_add"],
                "features": ["imm", "inv", "reset", "retire", "change"], "max_read_depth": 255,
                "max_atomic_depth": 255, "max_planes": 8, "srq": True, "hints": False}

    # Set-up.

    def open(self, now, role, local, peer, source_port_base, seed, ack_delay_us, initial_psn=None, **args):
        if self.endpoint is not None:
            raise BadRequest("already_open", "open was asked for already")
        if local[1] != peer[1]:
            raise BadRequest("misuse", "both sides receive on one and the same port")
        if "capacity_mbps" in args and self.giver is None:
            raise BadRequest("limit", "this endpoint gives no hints")
        self.further = any(name in args for name in OPEN_FURTHER)
        count = args.pop("source_ports", None) or args["paths"]
        if source_port_base + count > 0x10000:
            raise BadRequest("limit", "the source ports go beyond 65535")
        for name in ("features", "planes"):
            args.setdefault(name, ())
        settings = Settings(port=local[1], isn=initial_psn, ack_delay_us=ack_delay_us,
                            source_ports=list(range(source_port_base, source_port_base + count)), **args)
        settings.planes = list(settings.planes)
        settings.hint_giver = self.giver
        self.endpoint = Endpoint(settings, local[0], peer[0], seed, memory=self.memory)
        if role == "initiator":
            self.endpoint.connect(now)
        else:
            self.endpoint.listen()
        return {"conn": 0}

    def adopt(self):
        """The first connection of the endpoint is number 0."""
        if self.endpoint is not None and self.connection is None and self.endpoint.connections:
            self.connection = next(iter(self.endpoint.connections.values()))

    def the_connection(self, conn):
        if self.endpoint is None:
            raise BadRequest("not_open", "open comes first")
        self.adopt()
        if conn != 0 or self.connection is None:
            raise BadRequest("no_such_connection", f"no connection {conn}")
        return self.connection

    def the_stream(self, conn, stream):
        connection = self.the_connection(conn)
        if stream not in connection.streams:
            raise BadRequest("no_such_stream", f"no stream {stream}")
        return connection, connection.streams[stream]

    # Memory.

    def region(self, mr):
        if mr not in self.memory.regions:
            raise BadRequest("no_such_region", f"no region {mr}")
        return self.memory.regions[mr]

    def piece(self, mr, offset, size):
        region = self.region(mr)
        if offset + size > len(region.data):
            raise BadRequest("out_of_bounds", f"region {mr} has {len(region.data)} bytes")
        return region

    def do_register(self, now, len, fill, remote_write, remote_read=False, remote_atomic=False, invalidate=False,
                    domain=0):
        if len > 1 << 31:
            raise BadRequest("limit", "at most 2 GiB")
        rights = [name for name, given in (("write", remote_write), ("read", remote_read), ("atomic", remote_atomic),
                                           ("invalidate", invalidate)) if given]
        region = self.memory.register(len, fill, rights, domain)
        return {"mr": region.mr, "va": f"0x{region.va:x}", "rkey": region.rkey}

    def do_deregister(self, now, mr):
        self.region(mr)
        self.memory.deregister(mr)
        return {}

    def do_write_memory(self, now, mr, offset, hex):
        region = self.piece(mr, offset, len(hex))
        region.data[offset:offset + len(hex)] = hex
        return {}

    def do_read_memory(self, now, mr, offset, len):
        if len > MAX_PIECE:
            raise BadRequest("limit", "at most 3 MiB at a time")
        region = self.piece(mr, offset, len)
        return {"hex": bytes(memoryview(region.data)[offset:offset + len]).hex()}

    def do_digest(self, now, mr, offset, len):
        region = self.piece(mr, offset, len)
        return {"sha256": hashlib.sha256(memoryview(region.data)[offset:offset + len]).hexdigest()}

    # Receives.

    def receive(self, wr_id, mr, offset, length):
        return Receive(wr_id, self.piece(mr, offset, length), offset, length)

    def do_post_recv(self, now, conn, stream, wr_id, mr, offset, len):
        connection, stream = self.the_stream(conn, stream)
        if connection.settings.srq:
            raise BadRequest("misuse", "receives come from the shared queue")
        connection.now = now
        connection.post_recv(stream, self.receive(wr_id, mr, offset, len))
        return {}

    def do_post_srq_recv(self, now, wr_id, mr, offset, len):
        connection = self.the_connection(0)
        if not connection.settings.srq:
            raise BadRequest("misuse", "there is no shared queue")
        connection.now = now
        connection.post_srq_recv(self.receive(wr_id, mr, offset, len))
        return {}

    def do_withdraw_recv(self, now, conn, stream, wr_id):
        _, stream = self.the_stream(conn, stream)
        return {"withdrawn": stream.withdraw(wr_id)}

    def do_withdraw_srq_recv(self, now, wr_id):
        return {"withdrawn": self.the_connection(0).withdraw_srq(wr_id)}

    # Work.

    def post(self, now, kind, conn, stream, wr_id, mr=None, offset=0, len=0, inline=None, fence=False, **more):
        connection, stream = self.the_stream(conn, stream)
        local = None
        if inline is None:
            local = (self.piece(mr, offset, len), offset)
            if kind in ("cmp_swap", "fetch_add") and len != 8:
                raise BadRequest("misuse", "the answer to an atomic operation has 8 bytes")
        size = len if inline is None else inline.__len__()
        if size > wire.MAX_MESSAGE:
            raise BadRequest("limit", "a message has at most 2^31 bytes")
        connection.now = now
        connection.post(Work(stream, kind, wr_id, size, local=local, inline=inline, fence=fence, **more))
        return {}

    def do_post_send(self, now, **args):
        return self.post(now, "send", **args)

    def do_post_write(self, now, **args):
        return self.post(now, "write", **args)

    def do_post_read(self, now, **args):
        return self.post(now, "read", **args)

    def do_post_cmp_swap(self, now, swap, **args):
        return self.post(now, "cmp_swap", operand=swap, **args)

    def do_post_fetch_add(self, now, add, **args):
        return self.post(now, "fetch_add", operand=add, **args)

    # Streams, paths, planes.

    def do_open_stream(self, now, conn, domain=None):
        connection = self.the_connection(conn)
        connection.now = now
        stream = connection.open_stream(domain)
        if stream is None:
            raise BadRequest("limit", "no further stream can be opened")
        return {"stream": stream.number}

    def do_reset_stream(self, now, conn, stream):
        connection, stream = self.the_stream(conn, stream)
        connection.now = now
        connection.reset_stream(stream)
        return {}

    def the_path(self, conn, path):
        connection = self.the_connection(conn)
        if path >= len(connection.send_paths):
            raise BadRequest("no_such_path", f"no path {path}")
        return connection, connection.send_paths[path]

    def do_move_path(self, now, conn, path, port=None, plane=None):
        connection, path = self.the_path(conn, path)
        if port is None and plane is None:
            raise BadRequest("bad_request", "move_path needs port or plane")
        if plane is not None and plane >= connection.planes_agreed:
            raise BadRequest("no_such_plane", f"no plane {plane}")
        if port is not None and (port not in connection.ports or any(
                p.port == port and p is not path for p in connection.send_paths)):
            raise BadRequest("misuse", f"port {port} is not free")
        connection.now = now
        connection.move_path(path, port, plane)
        return {}

    def do_retire_path(self, now, conn, path):
        connection, path = self.the_path(conn, path)
        if not connection.agreed("retire") or not path.alive or not connection.other_alive(path):
            raise BadRequest("misuse", "the path cannot be retired")
        connection.now = now
        connection.retire(path, wire.RETIRE_LOCAL)
        return {}

    def do_set_plane(self, now, conn, plane, up):
        connection = self.the_connection(conn)
        if plane >= connection.planes_agreed:
            raise BadRequest("no_such_plane", f"no plane {plane}")
        connection.now = now
        connection.set_plane(plane, up)
        return {}

    def do_set_capacity(self, now, mbps):
        raise BadRequest("misuse", "open has named no capacity")

    # The end.

    def do_close(self, now, conn):
        connection = self.the_connection(conn)
        connection.now = now
        connection.close()
        return {}

    def do_abort(self, now, conn):
        connection = self.the_connection(conn)
        connection.now = now
        connection.abort()
        return {}

    # What there is to see.

    def counters(self):
        """All counters; those of CONV-012 and ERR-024 are `crc_errors` and those of what was refused, ignored or passed over in silence."""
        names = {"crc_errors": 0, "malformed": 0, "unknown_cid": 0, "refused": 0, "ignored": 0, "silence": 0,
                 "out_of_window": 0, "duplicates": 0, "naks_received": 0, "naks_sent": 0, "data_sent": 0,
                 "data_received": 0, "messages_sent": 0, "messages_received": 0, "bytes_received": 0}
        for source in (self.endpoint, self.connection):
            for name, value in (source.counters if source else {}).items():
                names[name] += value
        return names

    def do_counters(self, now, conn):
        self.the_connection(conn)
        return {"counters": self.counters()}

    def do_stats(self, now, conn, path=None, stream=None):
        c = self.the_connection(conn)
        out = {"connection": {
            "state": c.state, "paths": c.paths_agreed, "planes": c.planes_agreed, "streams": c.streams_agreed,
            "streams_open": sum(s.state == "open" for s in c.streams.values()),
            "features": [f for f in wire.FEATURES if c.agreed(f)], "payload_size": c.payload_size,
            "read_depth": c.peer["read_depth"], "atomic_depth": c.peer["atomic_depth"], "in_flight": c.in_flight,
            "window": c.window, "hint_mbps": None if c.hint == wire.NO_LIMIT else c.hint,
            "messages_sent": c.counters["messages_sent"], "messages_received": c.counters["messages_received"],
            "bytes_received": c.counters["bytes_received"]}}
        if path is not None:
            _, p = self.the_path(conn, path)
            state = p.state
            if state == "open" and p.probe_sent:
                state = "probing"
            elif state == "retired" and not c.moved:
                state = "resting"
            out["path"] = {
                "src_port": p.port, "plane": p.plane, "epoch": p.epoch, "state": state, "window": p.window,
                "alpha": p.alpha, "srtt_ns": None if p.srtt is None else int(p.srtt), "rttvar_ns": int(p.rttvar or 0),
                "in_flight": p.in_flight, "ecn_off": p.ecn_off, "marks": p.marks, "losses": p.losses,
                "retransmissions": p.retransmissions, "timeouts": p.timeouts, "probes": p.probes,
                "packets_sent": p.packets_sent, "bytes_sent": p.bytes_sent}
        if stream is not None:
            _, s = self.the_stream(conn, stream)
            credit = (s.credit - s.next_rqsn) & 0xFFFF if s.credit is not None and s.has_credit(s.next_rqsn) else 0
            out["stream"] = {"state": s.state, "work": len(s.work), "receives": len(s.receives) + s.granted,
                             "credit": credit, "in_flight": s.psns}
        return out

    def take_events(self):
        """Events since the last time, in the words of the schema."""
        self.adopt()
        if self.endpoint is not None:
            for event in self.endpoint.poll_events():
                told = self.told(event)
                if told is not None:
                    self.events.append(told)
        return self.events

    def told(self, event):
        event = {"type": event["type"], "conn": 0, **event}
        if event["type"] == "failed" and "status" not in event:
            event["status"] = "IBV_WC_RETRY_EXC_ERR"
        if not self.further:
            if event["type"] in ("stream_opened", "stream_ended", "path_alive"):
                return None
            for name in ("imm", "invalidated", "solicited"):
                event.pop(name, None)
        return event
