"""Several senders to one receiver."""

from ..build import RKEY, US, VA, Scene

# Capacity, Mb/s, of which 209 are shared among three senders: evenly at first, then as they can use it.
CAPACITY = 220
EVEN, SMALL, LARGE = 69, 33, 87
INTERVAL = 100 * US


def incast():
    s = Scene("incast", "Three senders, one receiver: shares in one round trip",
              "A receiver with 220 Mb/s shares 209 of them. Three connections begin at once, without hints so far: 69 Mb/s for each. In each interval of 100 us the first one "
              "brings 336 bytes (26.9 Mb/s) and has a demand of 1.25 times that; the others use what they are given. From the first renewal on the shares are max-min: 33 for "
              "it and 87 for each of the others. The number of the hint rises when the rate changes, and then only.",
              hints=(0, 1), hint_interval=(0, 100), address="192.0.2.11", cids=(0x0A0A01, 0x0B0B01))
    for n in range(1, 3):
        s.connect(hints=(0, 1), hint_interval=(0, 100), address=f"192.0.2.{11 + n}", cids=(0x0A0A01 + n, 0x0B0B01 + n),
                  ports=(50000 + 10 * n, 51000 + 10 * n))
    for n, c in enumerate(s.connections):
        c["acceptor"]["capacity_mbps"] = CAPACITY
        s.region("acceptor", va=VA + 0x1000 * n, length=0x1000, rkey=RKEY + n, connection=n)
    s.hint = hint
    each, rounds = (1, 3, 3), 4
    work = [s.write(0, n + 1, (rounds * each[n] + 1) * 256, va=VA + 0x1000 * n, rkey=RKEY + n, connection=n) for n in range(3)]
    for r in range(rounds):
        for n in range(3):
            first = [s.tx(r * INTERVAL + 1000 + n * 1000 + k * 100, work[n], r * each[n] + k) for k in range(each[n])]
            s.ack(first[0].arrives + 8 * US, "acceptor", connection=n, tag=f"r{r}n{n}")
    for n in range(3):
        last = s.tx(rounds * INTERVAL + 1000 + n * 1000, work[n], rounds * each[n])
        ack = s.ack(last.arrives, "acceptor", connection=n, tag=f"r{rounds}n{n}")
        s.finished(ack.arrives, work[n])
    s.end(rounds * INTERVAL + 60 * US)
    s.keeps("HINT-001", "HINT-002", "HINT-004", "HINT-005", "HINT-007", "HINT-008", "REL-015", "REL-019", "REL-023", "STRM-027", "PKT-011")
    yield s
    yield s.wrong("shares-stay", "The receiver gives even shares for good, so that the rest of the small sender is wasted.", {"HINT-005": "r4n0"}, stay,
                  drop=("HINT-007",))
    yield s.wrong("everything-for-everyone", "At the first renewal each sender is given all that there is.", {"HINT-004": "r1n1"}, everything,
                  drop=("HINT-005", "REL-015", "STRM-027"))
    yield s.wrong("new-rate-old-number", "A new rate comes under the number of the old one.", {"HINT-002": "r1n1"}, old_number,
                  drop=("HINT-005", "REL-015", "STRM-027"))
    yield s.wrong("no-hint", "An acknowledgment carries no hint.", {"HINT-001": "r0n2"}, no_hint,
                  drop=("HINT-002", "HINT-004", "HINT-005", "HINT-007", "HINT-008", "REL-015", "STRM-027"))


def hint(step):
    """Hint epoch and rate of the receiver at the time of an acknowledgment."""
    if step.at < INTERVAL:
        return 1, EVEN
    return 2, SMALL if step.connection == 0 else LARGE


def stay(c):
    for r in range(1, 5):
        for n in range(3):
            c.set(f"r{r}n{n}", "ACK", hint_epoch=1, rate_hint=EVEN)


def everything(c):
    for n in range(3):
        c.set(f"r1n{n}", "ACK", rate_hint=209)
    c.cut("r1n2", c["r1n2"].arrives + 5 * US)


def old_number(c):
    c.set("r1n1", "ACK", hint_epoch=1)
    c.cut("r1n2", c["r1n2"].arrives + 5 * US)


def no_hint(c):
    c.set("r0n2", "ACK", hint_epoch=0, rate_hint=0xFFFFFF)
    c.cut("r0n2", c["r0n2"].arrives + 5 * US)


SUBJECTS = {"incast": incast}
