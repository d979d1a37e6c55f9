"""An endpoint: takes datagrams, sets up connections, and hands packets to them. No I/O and no clock in it."""

import logging
import random
from collections import deque

from . import wire
from .codec import Malformed, Packet, decode, encode
from .connection import Connection
from .handshake import (NO_PLANES, Cookies, accept_fits, agree, family, own_params, plane_addresses, planes_field,
                        planes_fit, within_limits)
from .crc import address_bytes
from .memory import Memory
from .recvpath import NOT_ECT
from .serial import add
from .settings import NEVER

log = logging.getLogger("metaroce")
OPS = wire.OPCODE


class Attempt:
    """An initiator's set-up that is under way: `opening` or `confirming`."""

    def __init__(self, txid, params, planes):
        self.state = "opening"
        self.txid, self.params, self.planes = txid, params, planes
        self.fields = {"params": params, "planes": planes, "padding": bytes(32)}
        self.opcode = OPS["OPEN"]
        self.dcid = 0
        self.accepted = self.accepted_planes = None
        self.sendings = 0
        self.due = 0          # when it is sent (again)


class Endpoint:
    """One own address in plane 0, one peer that may be configured, and the connections with it."""

    def __init__(self, settings, local, peer=None, seed=0, max_connections=1, memory=None):
        self.settings, self.local, self.peer = settings, local, peer
        self.rng = random.Random(seed)
        self.memory = memory or Memory(self.rng)
        self.cookies = Cookies(self.rng, settings.cookie_life)
        self.max_connections = max_connections
        self.connections = {}       # own connection id -> Connection
        self.used_cookies = {}      # own connection id -> when its cookie was used
        self.attempt = None
        self.accepting = False
        self.out = deque()          # (destination, port, packet) that belong to no connection
        self.events = deque()
        self.counters = {"crc_errors": 0, "malformed": 0, "unknown_cid": 0, "refused": 0, "ignored": 0}
        self.port_turn = 0
        self.ts_offset = self.rng.getrandbits(32)

    # Set-up.

    def listen(self):
        self.accepting = True

    def connect(self, now):
        """Sends OPEN to the peer (state `opening`)."""
        isn = self.settings.isn
        params = own_params(self.settings, self.new_cid(), self.rng.getrandbits(64),
                            self.rng.getrandbits(32) if isn is None else isn)
        self.attempt = Attempt(self.rng.getrandbits(32), params, planes_field(self.settings.planes))
        self.attempt.due = now

    def new_cid(self):
        while True:
            cid = self.rng.randrange(1, 1 << 24)
            if cid not in self.connections and cid not in self.used_cookies:
                return cid

    def handle(self, datagram, source, destination, ecn, now):
        """Takes one datagram that came from `source` to the own address `destination`."""
        try:
            packet = decode(datagram, source, destination, self.settings.port)
        except Malformed as error:
            self.counters["crc_errors" if error.kind == "bad_crc" else "malformed"] += 1
            return
        if packet.opcode not in wire.PACKETS:
            self.counters["malformed"] += 1
            return
        if packet.name == "OPEN":
            self.on_open(packet, source, destination, now)
        elif packet.name == "CONFIRM":
            self.on_confirm(packet, source, destination, now)
        elif packet.name in ("ACCEPT", "REJECT", "CONFIRM_ACK"):
            self.on_answer(packet, source, destination, now)
        else:
            connection = self.connections.get(packet.dcid)
            if connection is None or packet.dcid == 0:
                self.counters["unknown_cid"] += 1
                return
            overhead = 48 if ":" in destination else 28
            connection.handle(packet, source, destination, ecn, now, len(datagram) + overhead)

    # The acceptor.

    def reject(self, packet, reason, source):
        self.counters["refused"] += 1
        self.out.append((source, None, Packet(OPS["REJECT"], psn=packet.psn, dcid=packet.params["scid"], reason=reason,
                                              ver_min=1, ver_max=1, nonce=packet.params["nonce"], detail=0)))

    def refusal_of(self, packet, source):
        """The reason for which parameters are refused, or None, in the order of chapter 3."""
        offer = packet.params
        if offer["ver_min"] > 1 or offer["ver_max"] < 1:
            return wire.REJECT_VERSION
        if offer["service_id"] != self.settings.service_id:
            return wire.REJECT_NO_SERVICE
        if not within_limits(offer) or not planes_fit(offer, packet.planes):
            return wire.REJECT_BAD_PARAMETERS
        for connection in self.connections.values():
            if connection.peer_cid == offer["scid"] and connection.peer_addresses[0] == source \
                    and connection.peer["nonce"] != offer["nonce"]:
                return wire.REJECT_NO_RESOURCE   # CONN-048
        return None

    def on_open(self, packet, source, destination, now):
        if not self.accepting or destination != self.local:
            self.counters["ignored"] += 1
            return
        reason = self.refusal_of(packet, source)
        copy = any(c.peer_cid == packet.params["scid"] and c.peer["nonce"] == packet.params["nonce"]
                   and c.peer_addresses[0] == source for c in self.connections.values())
        if reason is None and not copy and self.living() >= self.max_connections:
            reason = wire.REJECT_NO_RESOURCE
        if reason is not None:
            self.reject(packet, reason, source)
            return
        isn = self.settings.isn
        own = own_params(self.settings, self.new_cid(), self.rng.getrandbits(64),
                         self.rng.getrandbits(32) if isn is None else isn)
        families = [family(address_bytes(a)) for a in self.settings.planes]
        agreed, planes = agree(self.settings, packet.params, packet.planes, own, families)
        cookie = self.cookies.make(now, source, destination, self.settings.port, packet.params, packet.planes, agreed,
                                   planes)
        self.out.append((source, None, Packet(OPS["ACCEPT"], psn=packet.psn, dcid=packet.params["scid"], params=agreed,
                                              planes=planes, cookie=cookie)))

    def living(self):
        return sum(not c.over for c in self.connections.values())

    def on_confirm(self, packet, source, destination, now):
        if not self.accepting or destination != self.local:
            self.counters["ignored"] += 1
            return
        offer, accepted = packet.params, packet.accepted
        cid = accepted["scid"]
        known = self.connections.get(cid)
        if known is not None and packet.dcid == cid and known.peer == offer and known.own == accepted \
                and known.peer_addresses[0] == source:
            self.confirm_ack(packet, source)   # CONN-018
            return
        fits = packet.dcid == cid and self.cookies.fits(
            packet.cookie, now, source, destination, self.settings.port, offer, packet.planes, accepted,
            packet.accepted_planes)
        if not fits or not self.cookies.fresh(packet.cookie, now) or cid in self.used_cookies and known is None:
            self.reject(packet, wire.REJECT_BAD_COOKIE, source)
            return
        reason = self.refusal_of(packet, source)
        if reason is None and (known is not None or self.living() >= self.max_connections):
            reason = wire.REJECT_NO_RESOURCE
        if reason is not None:
            self.reject(packet, reason, source)
            return
        self.used_cookies[cid] = now
        extra = accepted["extra_planes"]
        connection = Connection(
            self.settings, self.memory, self.rng, False, accepted, offer, accepted,
            [destination] + plane_addresses(packet.accepted_planes, extra),
            [source] + plane_addresses(packet.planes, extra), now, self.rng.getrandbits(32))
        self.connections[cid] = connection
        self.confirm_ack(packet, source)
        connection.open_first_streams()

    def confirm_ack(self, packet, source):
        self.out.append((source, None, Packet(OPS["CONFIRM_ACK"], psn=packet.psn, dcid=packet.params["scid"],
                                              nonce=packet.params["nonce"])))

    # The initiator.

    def on_answer(self, packet, source, destination, now):
        attempt = self.attempt
        if attempt is None or packet.psn != attempt.txid or packet.dcid != attempt.params["scid"] \
                or source != self.peer or destination != self.local \
                or packet.name != "ACCEPT" and packet.nonce != attempt.params["nonce"]:
            self.counters["ignored"] += 1   # CONN-038
            return
        if packet.name == "REJECT":
            self.give_up(now, f"refused with reason {packet.reason}")
        elif packet.name == "ACCEPT" and attempt.state == "opening":
            if not accept_fits(attempt.params, attempt.planes, packet.params, packet.planes):
                self.give_up(now, "ACCEPT names what was not offered")
                return
            attempt.state = "confirming"
            attempt.accepted, attempt.accepted_planes = packet.params, packet.planes
            attempt.opcode, attempt.dcid = OPS["CONFIRM"], packet.params["scid"]
            attempt.txid = add(attempt.txid, 1)
            attempt.fields = {"params": attempt.params, "planes": attempt.planes, "cookie": packet.cookie,
                              "accepted": packet.params, "accepted_planes": packet.planes}
            attempt.sendings, attempt.due = 0, now
        elif packet.name == "CONFIRM_ACK" and attempt.state == "confirming":
            self.attempt = None
            extra = attempt.accepted["extra_planes"]
            connection = Connection(
                self.settings, self.memory, self.rng, True, attempt.params, attempt.accepted, attempt.accepted,
                [self.local] + plane_addresses(attempt.planes, extra),
                [self.peer] + plane_addresses(attempt.accepted_planes, extra), now, attempt.txid)
            self.connections[connection.own_cid] = connection
            connection.open_first_streams()
        else:
            self.counters["ignored"] += 1

    def give_up(self, now, message):
        self.attempt = None
        self.events.append({"type": "failed", "status": "IBV_WC_RETRY_EXC_ERR", "message": message, "t_ns": now})

    # Time and output.

    def next_port(self):
        self.port_turn = (self.port_turn + 1) % len(self.settings.source_ports)
        return self.settings.source_ports[self.port_turn]

    def tick(self, now):
        attempt = self.attempt
        if attempt is not None and now >= attempt.due:
            if attempt.sendings > self.settings.repetitions:
                self.give_up(now, f"no answer in {attempt.state}")
            else:
                attempt.sendings += 1
                attempt.due = NEVER
                self.out.append((self.peer, attempt, Packet(attempt.opcode, psn=attempt.txid, dcid=attempt.dcid,
                                                            **attempt.fields)))
        for cid, connection in list(self.connections.items()):
            if now >= connection.deadline(now):
                connection.tick(now)
            if connection.over and now >= connection.forget_at:
                self.events.extend(connection.events)
                del self.connections[cid]
        for cid, when in list(self.used_cookies.items()):
            if cid not in self.connections and now - when >= self.settings.cookie_life + self.settings.linger:
                del self.used_cookies[cid]

    def deadline(self, now):
        due = NEVER
        if self.out:
            return now
        if self.attempt is not None:
            due = self.attempt.due
        for connection in self.connections.values():
            due = min(due, connection.deadline(now))
        return due

    def poll_transmit(self, now, new=True):
        """One datagram: (source address, source port, destination address, ECN codepoint, bytes), or None.

        Without `new` only what is due at once.
        """
        if self.out:
            destination, attempt, packet = self.out.popleft()
            if attempt is not None:
                attempt.due = now + (self.settings.control << (attempt.sendings - 1))
            packet.timestamp = (now // self.settings.ts_unit + self.ts_offset) & 0xFFFFFFFF
            datagram = encode(packet, self.local, destination, self.settings.port)
            return self.local, self.next_port(), destination, NOT_ECT, datagram
        for connection in self.connections.values():
            datagram = connection.poll_transmit(now, new)
            if datagram is not None:
                return datagram
        return None

    def poll_events(self):
        """Everything that the program is to hear."""
        out = list(self.events)
        self.events.clear()
        for connection in self.connections.values():
            while connection.events:
                out.append(connection.events.popleft())
        return out
