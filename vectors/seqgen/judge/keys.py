"""Keys that a Send with invalidation closes."""

from .. import wire


class Keys:
    """The keys of one side."""

    def __init__(self, work):
        self.w, self.judge, self.c, self.side = work, work.judge, work.c, work.side
        self.invalid = set()
        self.named = {}       # (stream, msn) of the peer's SEND_INV -> key
        self.own = {}         # (stream, msn) of this side's SEND_INV -> key

    def sent(self, step):
        """A packet of this side names a key to invalidate."""
        msgh, key = step["fields"]["MSGH"], step["fields"]["SEND_INV"]["rkey"]
        self.judge.check("OPS-008", self.own.setdefault((msgh["stream"], msgh["msn"]), key) == key)

    def arrived(self, step):
        msgh = step["fields"]["MSGH"]
        self.named[msgh["stream"], msgh["msn"]] = step["fields"]["SEND_INV"]["rkey"]

    def may_be_closed(self, key):
        return any(r["rkey"] == key and "remote_invalidate" in r["allow"] for r in self.w.regions) and key not in self.invalid

    def closed(self, key):
        """The side reports that the key opens nothing any more."""
        self.invalid.add(key)
        below = [place for place, named in self.named.items() if named == key]
        self.judge.check("OPS-010", bool(below) and not self.w.overtakes({"stream": below[0][0], "msn": below[0][1], "mflags": wire.INV}))

    def receive_done(self, stream, msn):
        self.judge.check("OPS-009", self.named.get((stream, msn)) in self.invalid)
