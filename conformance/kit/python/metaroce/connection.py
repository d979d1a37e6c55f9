"""One connection: what its parts share. The parts are in a file for each subject; none of them does I/O or reads a clock.

Bytes and times go in with `handle`; `poll_transmit` gives one datagram at a time, `deadline` tells when `tick` is due,
and `events` fills with what the program is to hear.
"""

import logging
from collections import deque

from . import wire
from .acks import Acks
from .codec import Packet, encode
from .congestion import Congestion
from .control import Control
from .hints import Hints
from .paths import Paths
from .receiver import Receiver
from .recvpath import NOT_ECT, RecvPath
from .refusals import Refusals
from .reliability import Reliability
from .sender import Sender
from .sendpath import SendPath
from .settings import NEVER
from .streams import Streams

log = logging.getLogger("metaroce")


class Connection(Control, Streams, Sender, Reliability, Paths, Congestion, Receiver, Acks, Refusals, Hints):
    """`own` and `peer` are the PARAMS of both sides, `agreed` those of ACCEPT; addresses are lists by plane."""

    def __init__(self, settings, memory, rng, initiator, own, peer, agreed, own_addresses, peer_addresses, now, txid):
        self.settings, self.memory, self.rng, self.initiator = settings, memory, rng, initiator
        self.own, self.peer = own, peer
        self.own_cid, self.peer_cid = own["scid"], peer["scid"]
        self.own_addresses, self.peer_addresses = own_addresses, peer_addresses
        self.port = settings.port
        self.paths_agreed, self.streams_agreed = agreed["paths"], agreed["streams"]
        self.payload_size, self.msg_window = agreed["payload_size"], agreed["msg_window"]
        self.planes_agreed = agreed["extra_planes"] + 1
        self.feature_bits = agreed["features"]
        self.own_ack_delay = own["ack_delay"] * 1000
        self.peer_ack_delay = peer["ack_delay"] * 1000
        self.peer_ts_unit = peer["ts_unit"]
        self.events = deque()
        self.counters = {"malformed": 0, "silence": 0, "out_of_window": 0, "duplicates": 0, "naks_received": 0,
                         "naks_sent": 0, "ignored": 0, "data_sent": 0, "data_received": 0, "messages_sent": 0,
                         "messages_received": 0, "bytes_received": 0}
        self.state = "connected"
        self.now = now
        self.out = deque()   # (plane, source port, packet): control, answers, NAKs
        self.ts_offset = rng.getrandbits(32)
        self.ports = list(settings.source_ports)
        self.port_turn = rng.randrange(len(self.ports))
        self.send_paths = [SendPath(n, own["isn"], self.ports[n % len(self.ports)], n % self.planes_agreed)
                           for n in range(self.paths_agreed)]
        self.recv_paths = [RecvPath(n, peer["isn"]) for n in range(self.paths_agreed)]
        self.start_control(now, txid)
        self.start_streams()
        self.start_sender()
        self.start_congestion()
        self.start_refusals()
        self.start_hints()
        self.start_planes(now)

    def agreed(self, feature):
        return bool(self.feature_bits & wire.FEATURES[feature])

    def timestamp(self, now):
        return (now // self.settings.ts_unit + self.ts_offset) & 0xFFFFFFFF

    def event(self, type_, **more):
        self.events.append({"type": type_, "t_ns": self.now, **more})

    def next_port(self):
        """Answers and control leave from one port after the other, so that no route is the only one."""
        self.port_turn = (self.port_turn + 1) % len(self.ports)
        return self.ports[self.port_turn]

    def send(self, packet, plane=0, port=None):
        """Puts a packet that is not data into the queue."""
        packet.dcid = self.peer_cid
        self.out.append((plane, port or self.next_port(), packet))

    def live_plane(self):
        """A plane for what belongs to none: that of a path that is alive and was heard on last."""
        best = max((p for p in self.send_paths if p.alive and self.plane_up[p.plane]),
                   key=lambda p: p.last_report, default=None)
        return best.plane if best else 0

    @property
    def over(self):
        return self.state in ("closed", "failed")

    def handle(self, packet, source, destination, ecn, now, size):
        """A packet that names this connection and has passed all checks that it allows by itself."""
        self.now = now
        if self.over:
            self.control_when_over(packet)
            return
        if source not in self.peer_addresses:
            self.counters["silence"] += 1
            return
        plane = self.peer_addresses.index(source)
        if self.own_addresses[plane] != destination:
            self.counters["silence"] += 1
            return
        self.heard(now)
        if wire.is_data(packet.opcode):
            self.counters["data_received"] += 1
            self.on_data(packet, plane, ecn, now, size)
        elif packet.opcode in (wire.OPCODE["ACK"], wire.OPCODE["ACK_SACK"]):
            self.on_ack(packet, now)
        elif packet.opcode == wire.OPCODE["NAK"]:
            self.counters["naks_received"] += 1
            self.on_nak(packet, now)
        else:
            self.on_control(packet, plane, now)
        self.progress(now)

    def progress(self, now):
        """What follows from anything that has changed."""
        if not self.over:
            self.complete_work()
            self.settle(now)

    def poll_transmit(self, now, new=True):
        """One datagram: (source address, source port, destination address, ECN codepoint, bytes), or None.

        Without `new` only what is due at once: answers, control, acknowledgments, repairs.
        """
        self.now = now
        if self.out:
            plane, port, packet = self.out.popleft()
            return self.datagram(plane, port, packet, now, NOT_ECT)
        if self.over:
            return None
        return self.next_ack(now) or self.next_data(now, new)

    def datagram(self, plane, port, packet, now, ecn):
        packet.timestamp = self.timestamp(now)
        self.note_leaving(packet, now)
        source, destination = self.own_addresses[plane], self.peer_addresses[plane]
        return source, port, destination, ecn, encode(packet, source, destination, self.port)

    def note_leaving(self, packet, now):
        """Timers of control count from when the packet leaves."""
        request = getattr(packet, "request", None)
        if request is not None:
            del packet.request
            request.left(now)
        probe = packet.__dict__.pop("probe", None)
        if probe is not None:
            path = probe
            path.probes_out[packet.psn] = (path.order, now, packet.timestamp)

    def tick(self, now):
        """Lets every timer fire that is due."""
        self.now = now
        self.control_timers(now)
        if self.over:
            return
        self.reliability_timers(now)
        if self.over:
            return
        self.path_timers(now)
        self.stream_timers(now)
        self.refusal_timers(now)
        self.hint_timers(now)
        self.progress(now)

    def deadline(self, now):
        """When `tick` or `poll_transmit` has something to do, if nothing comes before."""
        if self.out:
            return now
        due = self.control_deadline()
        if not self.over:
            due = min(due, self.reliability_deadline(now), self.path_deadline(), self.stream_deadline(),
                      self.refusal_deadline(), self.hint_deadline(now), self.ack_deadline(), self.send_deadline(now))
        return due
