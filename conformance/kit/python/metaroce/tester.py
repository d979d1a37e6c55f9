"""A scripted initiator: hand-made packets against an implementation behind its adapter."""

import json
import random
import select
import shlex
import subprocess
import time

from . import codec, handshake, wire
from .codec import Packet
from .reliability import reported, vector_bits
from .serial import add
from .settings import Settings
from .udp import Sockets

OPS = wire.OPCODE
PORT = 49400
OURS, THEIRS = ["127.12.0.1", "127.12.1.1"], ["127.12.0.2", "127.12.1.2"]
EVERY = ["imm", "inv", "reset", "retire", "change"]
SCRIPTS = []


def script(**options):
    def take(function):
        SCRIPTS.append((function, options))
        return function
    return take


class Broken(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Broken(text)


class Adapter:
    def __init__(self, command):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0

    def ask(self, op, **args):
        self.number += 1
        self.process.stdin.write((json.dumps({"id": self.number, "op": op, **args}) + "\n").encode())
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise Broken(f"{op} draws {answer['error']}")
        return answer["ok"]

    def events(self, milliseconds=0):
        out = []
        end = time.monotonic() + milliseconds / 1000
        while True:
            out += self.ask("poll", timeout_ms=max(0, int((end - time.monotonic()) * 1000)))["events"]
            if time.monotonic() >= end:
                return out


class Tester:
    """One connection with the implementation as acceptor."""

    def __init__(self, adapter, features=EVERY, read_depth=2, atomic_depth=2, streams=2, paths=4, planes=0, msg_window=4,
                 payload_size=256, first_streams=1, connect=True, offer_streams=None, role="acceptor", hints=False, **open_args):
        self.adapter, self.rng = adapter, random.Random()
        self.sockets = Sockets(OURS[:planes + 1], PORT)
        for s in self.sockets.receiving:
            s.settimeout(0)
        self.settings = Settings(service_id=7, port=PORT, paths=paths, streams=offer_streams or streams, msg_window=msg_window,
                                 payload_size=payload_size, ack_delay_us=1000, features=features, read_depth=read_depth,
                                 atomic_depth=atomic_depth, planes=OURS[1:planes + 1], ts_unit=1)
        if hints:
            self.settings.hint_giver, self.settings.hint_interval_us = self, 1000
        self.args = {"role": role, "local": f"{THEIRS[0]}:{PORT}", "peer": f"{OURS[0]}:{PORT}", "service_id": 7,
                     "paths": paths, "streams": streams, "payload_size": payload_size, "msg_window": msg_window,
                     "source_port_base": 51000, "source_ports": paths, "seed": self.rng.getrandbits(32),
                     "ack_delay_us": 200, "features": features, "read_depth": read_depth, "atomic_depth": atomic_depth,
                     "first_streams": first_streams, **open_args}
        if planes:
            self.args["planes"] = THEIRS[1:planes + 1]
        adapter.ask("open", **self.args)
        self.txid = self.rng.getrandbits(32)
        self.seen = []
        self.next_psn = {}
        self.dcid = 0
        if connect and role == "acceptor":
            self.connect()

    def close(self):
        self.sockets.close()

    def ack(self, packet, *, cum=None, sack=None, ce=0, ect=0, **more):
        """Acknowledges a packet of the implementation."""
        fields = {"path": packet.path, "epoch": packet.epoch, "ack_flags": wire.ECHO_VALID, "ack_delay": 0,
                  "timestamp_echo": packet.timestamp, "ce_count": ce, "ect_count": ect, "hint_epoch": 0,
                  "rate_hint": wire.NO_LIMIT, "stream": packet.stream,
                  "flags": wire.RTXE if packet.flags & wire.RTX else 0, **more}
        if sack is not None:
            fields["sack"] = sack
        return self.send("ACK" if sack is None else "ACK_SACK", psn=packet.psn if cum is None else cum, **fields)

    def post_write(self, size, wr_id=9):
        """Work for the implementation: a Write that nobody checks."""
        region = self.region(size)
        self.adapter.ask("post_write", conn=0, stream=0, wr_id=wr_id, mr=region["mr"], offset=0, len=size, va="0x1000", rkey=5)

    def stats(self, path=0):
        return self.adapter.ask("stats", conn=0, path=path)

    # Packets.

    def send(self, name, *, plane=0, to=None, port=None, edit=None, psn=None, **fields):
        fields.setdefault("dcid", self.dcid)
        packet = Packet(OPS[name], psn=self.new_txid() if psn is None else psn, timestamp=time.monotonic_ns() & 0xFFFFFFFF,
                        **fields)
        destination = THEIRS[plane if to is None else to]
        datagram = codec.encode(packet, OURS[plane], destination, PORT)
        if edit is not None:
            datagram = edit(datagram)
        ecn = 2 if wire.is_data(packet.opcode) else 0
        self.sockets.send(OURS[plane], port or 52000 + fields.get("path", 0), destination, ecn, datagram)
        return packet

    def new_txid(self):
        self.txid = add(self.txid, 1)
        return self.txid

    def gather(self, milliseconds):
        """Everything that comes within a time; acknowledges data that come."""
        end = time.monotonic() + milliseconds / 1000
        out = []
        while True:
            left = end - time.monotonic()
            readable, _, _ = select.select(list(self.sockets.receiving), [], [], max(0, left))
            for s in readable:
                while (taken := self.sockets.receive(s)) is not None:
                    data, source, own, ecn = taken
                    packet = codec.decode(data, source, own, PORT)
                    packet.when, packet.source, packet.own = time.monotonic(), source, own
                    out.append(packet)
            if left <= 0:
                self.seen += out
                return out

    def expect(self, *names, milliseconds=300, where=lambda p: True):
        """The first packet of a kind within a time."""
        end = time.monotonic() + milliseconds / 1000
        got = []
        while time.monotonic() < end:
            got += self.gather(5)
            for packet in got:
                if packet.name in names and where(packet):
                    return packet
        raise Broken(f"no {' or '.join(names)} within {milliseconds} ms; came: {[str(p)[:150] for p in got]}")

    def silence(self, milliseconds, *names, where=lambda p: True):
        for packet in self.gather(milliseconds):
            if (not names or packet.name in names) and where(packet):
                raise Broken(f"came: {packet}")

    # Set-up.

    def params(self, **changes):
        p = handshake.own_params(self.settings, self.rng.randrange(1, 1 << 24), self.rng.getrandbits(64),
                                 self.rng.getrandbits(32))
        p.update(changes)
        return p

    def open(self, params=None, planes=None):
        self.offer = params or self.params()
        self.offer_planes = planes or handshake.planes_field(self.settings.planes)
        return self.send("OPEN", dcid=0, params=self.offer, planes=self.offer_planes, padding=bytes(32))

    def confirm(self, accept, **changes):
        fields = {"params": self.offer, "planes": self.offer_planes, "cookie": accept.cookie, "accepted": accept.params,
                  "accepted_planes": accept.planes, "dcid": accept.params["scid"]}
        fields.update(changes)
        return self.send("CONFIRM", **fields)

    def connect(self, stream=True):
        self.open()
        self.accept = self.expect("ACCEPT")
        self.confirm(self.accept)
        self.expect("CONFIRM_ACK")
        self.dcid = self.accept.params["scid"]
        self.isn, self.peer_isn = self.offer["isn"], self.accept.params["isn"]
        self.next_psn = {p: self.isn for p in range(self.settings.paths)}
        if stream:
            self.open_stream(0)

    def open_stream(self, number, msn=1, rqsn=0):
        packet = self.send("STREAM_OPEN", stream=number, first_msn=msn, first_rqsn=rqsn, rq_limit=rqsn, src_qpn=1)
        return self.expect("STREAM_OPEN_ACK", where=lambda p: p.psn == packet.psn)

    # Data.

    def data(self, name, path=0, psn=None, epoch=0, stream=0, msn=1, offset=0, length=None, payload=None, rqsn=0, flags=0,
             mflags=None, plane=0, to=None, port=None, edit=None, **more):
        if psn is None:
            psn = self.next_psn[path]
            self.next_psn[path] = add(psn, 1)
        fields = {"path": path, "epoch": epoch, "stream": stream, "msn": msn, "offset": offset, "rqsn": rqsn,
                  "flags": flags, **more}
        if payload is not None:
            fields["payload"] = payload
            length = len(payload) if length is None else length
        fields["len"] = length or 0
        if mflags is None:
            size = len(payload) if payload is not None else fields["len"]
            mflags = (wire.SOM if offset == 0 else 0) | (wire.EOM if offset + size == fields["len"] else 0)
            mflags |= {"SEND_IMM": wire.IMM, "WRITE_IMM": wire.IMM, "SEND_INV": wire.INV, "READ_RESP": wire.RESP,
                       "ATOMIC_RESP": wire.RESP}.get(name, 0)
        return self.send(name, psn=psn, mflags=0 if name == "FILL" else mflags, plane=plane, to=to, port=port, edit=edit,
                         **fields)

    def ack_of(self, packet, milliseconds=200):
        """The report of a data packet's arrival."""
        return self.expect("ACK", "ACK_SACK", milliseconds=milliseconds, where=lambda p: p.path == packet.path
                           and p.epoch == packet.epoch
                           and reported(p.psn, vector_bits(p.sack) if p.name == "ACK_SACK" else 0, packet.psn))

    def nak_of(self, packet, code, milliseconds=200, scope=wire.SCOPE_STREAM):
        nak = self.expect("NAK", milliseconds=milliseconds, where=lambda p: p.offending_psn == packet.psn)
        need(nak.code == code, f"code {nak.code:02x}, not {code:02x}: {nak}")
        need(nak.scope == (wire.SCOPE_PACKET if code == wire.RNR else scope), f"scope of {nak}")
        need((nak.stream, nak.path, nak.epoch, nak.psn) == (packet.stream, packet.path, packet.epoch, 0), f"{nak} for {packet}")
        need(nak.msn == packet.msn, f"{nak} for {packet}")
        return nak

    def region(self, size=4096, fill=0, **rights):
        rights.setdefault("remote_write", True)
        ok = self.adapter.ask("register", len=size, fill=fill, **rights)
        return {"mr": ok["mr"], "va": int(ok["va"], 16), "rkey": ok["rkey"]}

    def memory(self, region, offset=0, size=64):
        return bytes.fromhex(self.adapter.ask("read_memory", mr=region["mr"], offset=offset, len=size)["hex"])

    def answer_reset(self, reset):
        self.send("STREAM_RESET_ACK", psn=reset.psn, stream=reset.stream)

    def sane(self, msn=1, stream=0, path=0, **more):
        """A sound Write is taken and placed."""
        region = self.region()
        data = self.rng.randbytes(40)
        packet = self.data("WRITE", path=path, stream=stream, msn=msn, payload=data, va=region["va"], rkey=region["rkey"],
                           flags=wire.AR, **more)
        self.ack_of(packet)
        need(self.memory(region, 0, 40) == data, "a sound Write was not placed")
