"""Planes: which packets go where when a connection has more than one pair of addresses."""

from .. import wire

ONCE = {"OPEN", "CONFIRM", "PATH_PROBE"}
SILENCE = 10_000_000


class Planes:
    """The planes of one connection."""

    def __init__(self, connection):
        self.c, self.judge = connection, connection.judge
        self.count = 1 + min(len(connection.given[side]["planes"]) for side in wire.SIDES)
        self.asked = {}       # (side that answers, transaction, name of the question) -> plane of its latest arrival
        self.requests = {}    # (side, name, transaction) -> plane of the latest transmission
        self.data = {}        # (side that receives, path) -> plane of the latest data packet
        self.refused = {}     # (side that receives, path, epoch, psn) -> plane of the latest data packet
        self.ports = {}

    def sent(self, step, side, cbh, name):
        if self.count == 1:
            return
        check, plane = self.judge.check, step.get("plane", 0)
        if not check("PLN-002", step.get("to_plane", plane) == plane):
            return
        if name in wire.DATA:
            check("PLN-001", plane == cbh["path"] % self.count)
        elif name in wire.ACKS:
            check("PLN-008", plane == self.data.get((side, cbh["path"])))
        elif name == "NAK":
            key = side, cbh["path"], cbh["epoch"], step["fields"]["NAK"]["offending_psn"]
            check("PLN-011", plane == self.refused.get(key))
        else:
            self.control(side, name, cbh["psn"], plane)

    def control(self, side, name, transaction, plane):
        key = side, name, transaction
        if (side, transaction, self.question(name)) in self.asked:
            self.judge.check("PLN-011", plane == self.asked[side, transaction, self.question(name)])
        elif key in self.requests and name not in ONCE:
            self.judge.check("PLN-007", plane != self.requests[key])
        self.requests[key] = plane

    @staticmethod
    def question(name):
        """What is answered by it."""
        return {"PATH_RETIRED": "PATH_RETIRE", "ACCEPT": "OPEN", "RQ_CREDIT": "RQ_CREDIT"}.get(name, name.removesuffix("_ACK"))

    def arrived(self, step, side):
        cbh, name, plane = step["fields"]["CBH"], step["packet"], step.get("plane", 0)
        if name in wire.DATA:
            self.data[side, cbh["path"]] = plane
            self.refused[side, cbh["path"], cbh["epoch"], cbh["psn"]] = plane
        elif name in wire.CONTROL:
            self.asked[side, cbh["psn"], name] = plane

    # --- a plane that is dark -----------------------------------------------------------------------------------------

    def silent(self, side):
        """The planes in which a path of this side has run into a timeout since it was last acknowledged."""
        return {key[0] % self.count for key, path in self.c.senders[side].outgoing.items() if path.in_a_row and not path.frozen}

    def posted(self, side):
        """Work is posted: it must not wait for paths that are silent."""
        sender = self.c.senders[side]
        if any(path.in_a_row for path in sender.outgoing.values()) and len(sender.outgoing) > 1:
            self.judge.due("PATH-009", ("goes on", self.c.number, side), self.judge.now + SILENCE)
            if self.silent(side) and len(self.silent(side)) < self.count:
                self.judge.due("PLN-005", ("goes on", self.c.number, side), self.judge.now + SILENCE)

    def new_packet(self, side, path):
        if not path.in_a_row:
            self.judge.met(("goes on", self.c.number, side))
