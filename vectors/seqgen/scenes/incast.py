"""Several senders to one receiver."""

from ..build import RKEY, US, VA, Scene

CAPACITY = 320
EVEN, SMALL, LARGE = 76, 33, 90


def incast():
    s = Scene("incast", "Four senders, one receiver: shares in one round trip",
              "A receiver with 320 Mb/s shares 304 of them. Four connections begin at once, without hints so far: 76 Mb/s for each. In the interval of 100 us one of them "
              "brings 336 bytes (26.9 Mb/s) and has a demand of 1.25 times that; the others use up what they were given. The next shares are max-min: 33 for "
              "it and 90 for each of the others.", hints=(0, 1), hint_interval=(0, 100), address="192.0.2.11", cids=(0x0A0A01, 0x0B0B01))
    for n in range(1, 4):
        s.connect(hints=(0, 1), hint_interval=(0, 100), address=f"192.0.2.{11 + n}", cids=(0x0A0A01 + n, 0x0B0B01 + n),
                  ports=(50000 + 10 * n, 51000 + 10 * n))
    for n, c in enumerate(s.connections):
        c["acceptor"]["capacity_mbps"] = CAPACITY
        s.region("acceptor", va=VA + 0x1000 * n, length=0x1000, rkey=RKEY + n, connection=n)
    s.hint = hint
    work, first = [], []
    for n in range(4):
        pieces = 2 if n == 0 else 4
        w = s.write(0, n + 1, pieces * 256, va=VA + 0x1000 * n, rkey=RKEY + n, connection=n)
        work.append((w, pieces))
        first.append([s.tx(1000 + n * 1000 + k * 100, w, k, tag=f"n{n}k{k}") for k in range(pieces - 1)])
    for n in range(4):
        s.ack(first[n][0].arrives + 8 * US, "acceptor", connection=n, tag=f"share{n}")
    for n, (w, pieces) in enumerate(work):
        last = s.tx(110 * US + n * 1000, w, pieces - 1, tag=f"n{n}last")
        ack = s.ack(last.arrives, "acceptor", connection=n, tag=f"next{n}")
        s.finished(ack.arrives, w)
    s.end(190 * US)
    s.keeps("HINT-001", "HINT-002", "HINT-003", "HINT-004", "HINT-005", "HINT-007", "HINT-008", "REL-015", "REL-019", "STRM-027", "PKT-011")
    yield s
    yield s.wrong("shares-stay", "The receiver does not renew its shares.", {"HINT-005": "next0"}, stay, drop=("HINT-002", "HINT-007"))
    yield s.wrong("everything-for-everyone", "Each of the senders is given all that there is.", {"HINT-004": "share1", "HINT-005": "share0"}, everything)
    yield s.wrong("new-rate-old-number", "A new rate comes under the number of the old one.", {"HINT-002": "next1", "HINT-003": "next1"},
                  lambda c: c.set("next1", "ACK", hint_epoch=1))
    yield s.wrong("no-hint", "An acknowledgment carries no hint.", {"HINT-001": "share2"}, lambda c: c.set("share2", "ACK", hint_epoch=0, rate_hint=0xFFFFFF))
    yield s.wrong("even-split", "The receiver splits evenly in the second interval, so that the small sender's rest is wasted.", {"HINT-005": "next0"}, even)


def hint(step):
    """Hint epoch and rate of the receiver at the time of an acknowledgment."""
    if step.at < 100 * US:
        return 1, EVEN
    return 2, SMALL if step.connection == 0 else LARGE


def stay(c):
    for n in range(4):
        c.set(f"next{n}", "ACK", hint_epoch=1, rate_hint=EVEN)


def even(c):
    for n in range(4):
        c.set(f"next{n}", "ACK", hint_epoch=2, rate_hint=75)


def everything(c):
    for n in range(4):
        c.set(f"share{n}", "ACK", rate_hint=304)


SUBJECTS = {"incast": incast}
