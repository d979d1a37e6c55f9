"""Judges a finished sequence by the clauses: which of them it exercises, and which it breaks, at which step.

It reads what stands in the file and nothing else, and shares no code with the side that builds the sequences but the
names of the wire. An arrival comes before a step of the same instant.
"""

from .. import wire
from .connection import Connection
from .hints import Hints


class Judge:
    """The verdict in the making."""

    def __init__(self, sequence):
        self.sequence, self.steps = sequence, sequence["steps"]
        self.exercised, self.broken, self.dues, self.step, self.now = set(), [], [], 0, 0
        self.hints = Hints(self)
        memory = sequence["memory"]
        self.connections = [Connection(self, n, c, memory) for n, c in enumerate(sequence["connections"])]
        self.run()

    # --- what the rules call ------------------------------------------------------------------------------------------

    def check(self, clause, holds):
        """The clause is exercised at the present step and holds or not."""
        self.exercised.add(clause)
        if not holds and (clause, self.step) not in self.broken:
            self.broken.append((clause, self.step))
        return holds

    def due(self, clause, key, deadline):
        """Something has to happen by then. It shows at the first step after that time that it has not."""
        if not any(d[0] == clause and d[1] == key for d in self.dues):
            self.dues.append((clause, key, deadline))

    def met(self, key):
        """It has happened."""
        for clause, _, _ in [d for d in self.dues if d[1] == key]:
            self.exercised.add(clause)
        self.dues = [d for d in self.dues if d[1] != key]

    def void(self, match):
        """What need not happen any more."""
        self.dues = [d for d in self.dues if not match(d[1])]

    # --- time ---------------------------------------------------------------------------------------------------------

    def run(self):
        line = []
        for n, step in enumerate(self.steps):
            line.append((step["at_ns"], 1, n, None))
            if step["kind"] == "packet" and step["fate"] != "lost":
                (kind, times), = step["fate"].items()
                line += [(at, 0, n, kind == "marked") for at in times.values()]
        for now, order, n, marked in sorted(line, key=lambda entry: entry[:3]):
            self.now = now
            if order == 0:
                step = self.steps[n]
                self.connections[step.get("connection", 0)].arrival(step, marked)
                continue
            self.step = n
            for due in [d for d in self.dues if d[2] < now]:
                self.dues.remove(due)
                self.check(due[0], False)
            step = self.steps[n]
            connection = self.connections[step.get("connection", 0)]
            if step["kind"] == "packet":
                connection.sent(step)
            else:
                connection.event(step)


def judge(sequence):
    """Clauses exercised, and the broken ones with the step at which each shows first."""
    verdict = Judge(sequence)
    first = {}
    for clause, step in verdict.broken:
        first.setdefault(clause, step)
    return verdict.exercised, first


def names(step):
    return wire.NAME[step["fields"]["CBH"]["opcode"]]
