"""One connection: who it is, and the rules for single packets."""

from .. import wire
from .control import Control
from .planes import Planes
from .receiver import Receiver
from .sender import Sender
from .work import Work


class Connection:
    """State of one connection of a sequence, as its wire and its events show it."""

    def __init__(self, judge, number, given, memory):
        self.judge, self.number, self.given = judge, number, given
        self.memory = memory
        self.paths, self.P, self.window = given["paths"], given["payload_size"], given["msg_window"]
        self.features = set(given["features"])
        self.streams = {s["stream"]: s for s in given["open_streams"]}
        self.senders = {side: Sender(self, side) for side in wire.SIDES}
        self.receivers = {side: Receiver(self, side) for side in wire.SIDES}
        self.work = {side: Work(self, side) for side in wire.SIDES}
        self.control, self.planes = Control(self), Planes(self)
        self.stamps = {}

    def sent(self, step):
        side, fields = step["from"], step["fields"]
        cbh, name = fields["CBH"], wire.NAME[fields["CBH"]["opcode"]]
        self.packet_rules(step, side, cbh, name)
        self.planes.sent(step, side, cbh, name)
        if name in wire.DATA:
            self.senders[side].data_sent(step)
            self.work[side].data_sent(step)
        elif name in wire.ACKS:
            self.receivers[side].ack_sent(step)
        elif name == "NAK":
            self.receivers[side].nak_sent(step)
        else:
            if name == "PATH_PROBE":
                self.senders[side].probe_sent(step)
            elif name == "PATH_PROBE_ACK":
                self.receivers[side].probe_ack_sent(step)
            elif name == "PATH_CHANGE":
                self.senders[side].routes.change_sent(step, fields)
            elif name == "PATH_RETIRE":
                self.senders[side].routes.retire_sent(step, fields)
            elif name == "PATH_RETIRED":
                self.receivers[side].epochs.retired_sent(step, fields)
            elif name == "STREAM_RESET":
                self.work[side].refusals.reset_out(fields)
            elif name == "STREAM_RESET_ACK":
                self.work[side].refusals.reset_ack_out(fields)
            self.control.sent(step, side, name)

    def arrival(self, step, marked):
        side = wire.other(step["from"])
        name = step["packet"]
        self.planes.arrived(step, side)
        if name in wire.DATA:
            self.receivers[side].data_arrived(step, marked)
        elif name in wire.ACKS:
            self.senders[side].ack_arrived(step)
        elif name == "NAK":
            self.work[side].refusals.nak_arrived(step)
        else:
            if name == "PATH_PROBE":
                self.receivers[side].probe_arrived(step)
            elif name == "PATH_PROBE_ACK":
                self.senders[side].probe_ack_arrived(step)
            elif name == "PATH_RETIRE":
                self.receivers[side].epochs.retire_arrived(step, step["fields"])
            elif name == "PATH_RETIRED":
                self.senders[side].routes.retired_arrived(step, step["fields"])
            elif name == "STREAM_RESET":
                self.work[side].refusals.reset_arrived(step["fields"])
            self.control.arrived(step, side, name)

    def event(self, step):
        (kind, values), = step["what"].items()
        side = step["side"]
        if kind == "end":
            for sender in self.senders.values():
                sender.event(kind, values)
            return
        self.senders[side].event(kind, values)
        self.receivers[side].event(kind, values)
        self.work[side].event(kind, values)
        if kind.startswith("post_") and kind != "post_recv":
            self.planes.posted(side)
            self.judge.hints.posted(self, side)

    def packet_rules(self, step, side, cbh, name):
        check = self.judge.check
        check("PKT-001", cbh["version"] == 1)
        if name not in wire.DATA:
            check("PKT-004", not cbh["flags"] & (wire.AR | wire.RTX | wire.SE))
            check("PKT-008", cbh["pad"] == 0)
            check("ECN-002", step["ecn"] == "not_ect")
        if name not in wire.ACKS:
            check("PKT-005", not cbh["flags"] & wire.RTXE)
        if name in wire.CONTROL:
            check("PKT-010", name in wire.PATH_CONTROL or (cbh["path"] == 0 and cbh["epoch"] == 0))
        if name == "OPEN":
            check("CONN-001", cbh["dcid"] == 0)
        elif name != "NAK":
            check("PKT-011", cbh["dcid"] == self.given[wire.other(side)]["cid"])
        if name in wire.DATA:
            key = side, cbh["path"]
            last = self.stamps.get(key)
            if last is not None:
                check("PKT-017", wire.ahead(cbh["timestamp"], last) >= 0)
            self.stamps[key] = cbh["timestamp"]
        if name in wire.ACKS and not self.given[side]["hint_support"]:
            ack = step["fields"]["ACK"]
            check("PKT-012", (ack["hint_epoch"], ack["rate_hint"]) == (0, wire.NO_HINT))
