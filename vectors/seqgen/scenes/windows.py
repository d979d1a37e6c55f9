"""The window of a path: start, marks, growth."""

from ..build import US, VA, Scene
from ..wire import AR

FIRST = 16
TOTAL = 70
# When a burst of new packets begins: after the first acknowledgments, not at the same time, so that no time falls on the end of an SRTT.
SECOND = 43 * US


def marks():
    s = Scene("marks-and-windows", "A window in its start, two cuts after marks, and growth between them",
              "One path, RTT and SRTT 40 us. At first W = 16 and alpha = 1. In the start each packet acknowledged adds one: 16 + 8 + 8 = 32. The packets 16 to 23 are marked. The first "
              "of them is acknowledged at once, more than an SRTT after the first sample, so alpha is renewed: 1 of the 9 packets acknowledged since then was marked, alpha = 15/16 + "
              "1/16 * 1/9 = 17/18, and W = 32 * (1 - 17/36) = 16.9; one more packet counted to the start would give 17.4. The other 7 marks come within the same SRTT and cut nothing. Now W grows by 1/W for each packet: 17.4, 17.8, "
              "18.3, 18.7 after four more acknowledgments of 8, 8, 8 and 7. Packets go out when fewer than W are in flight. Packet 48 is marked, an SRTT later: 8 of 32 since the "
              "last renewal, alpha = 15/16 * 17/18 + 1/16 * 1/4 = 0.901, and W = 18.7 * (1 - 0.451) = 10.3. Nothing new goes out until 10 are in flight.")
    s.region("acceptor", length=0x8000)
    w = s.write(0, 1, TOTAL * 256)
    marked = set(range(16, 24)) | {48}
    sent = []

    def burst(at, until, apart=100):
        while len(sent) < until:
            n = len(sent)
            flags = AR if n in (15, 47, TOTAL - 1) else 0
            sent.append(s.tx(at, w, n, 0, flags, ce=n in marked, tag=f"n{n}"))
            at += apart

    def ack(n):
        return s.ack(sent[n].arrives, "acceptor", tag=f"ack{n}").arrives

    burst(1000, FIRST)
    ack(7), ack(15)
    burst(SECOND, 48)
    ack(16), ack(24)
    for n in (32, 40, 47):
        at = ack(n)
        # In flight afterwards: one more than the whole packets in W.
        burst(at, {32: 51, 40: 60, 47: 67}[n], 50)
    ack(48), ack(49)
    at = ack(57)
    burst(at, TOTAL)
    ack(65)
    s.ack(sent[66].arrives + 8 * US, "acceptor", tag="ack66")
    s.finished(ack(TOTAL - 1), w, tag="done")
    s.end(s["done"].at + 10 * US)
    s.keeps("CC-001", "CC-002", "CC-003", "CC-004", "CC-005", "CC-006", "ECN-001", "ECN-003", "ECN-004", "ECN-008", "ECN-009", "REL-003", "REL-014", "REL-016",
            "PATH-010", "REL-002", "STRM-027")
    yield s
    yield s.wrong("more-than-the-first-window", "The sender begins with 20 packets instead of 16.", {"PATH-010": "n16", "CC-001": "n18"}, first_window,
                  drop=("CC-003", "CC-004", "CC-005", "CC-006", "ECN-003", "ECN-004", "ECN-008", "ECN-009", "REL-003", "REL-014", "REL-016", "STRM-027"))
    yield s.wrong("start-too-steep", "In its start the sender adds two for each packet: 32 after the first acknowledgment.", {"CC-001": "n34", "CC-004": "n34"}, steep,
                  drop=("CC-003", "CC-005", "CC-006", "ECN-008", "ECN-009", "STRM-027"))
    yield s.wrong("not-cut", "The sender does not cut its window after the first mark.", {"CC-001": "n48", "CC-005": "n48"}, not_cut,
                  drop=("CC-003", "STRM-027"))
    yield s.wrong("grows-as-in-its-start", "After the cut the sender goes on adding one for each packet.", {"CC-001": "n54", "CC-003": "n54"}, grows,
                  drop=("STRM-027",))
    yield s.wrong("second-mark-ignored", "The sender goes on after the mark of packet 48 as if W were still 18.7.", {"CC-001": "n67", "CC-005": "n67"}, ignored,
                  drop=("STRM-027",))


def first_window(c):
    c.move("n16", c["n15"].at + 100)
    for n in (17, 18):
        c.move(f"n{n}", c["n15"].at + 100 * (n - 15))
    c.steps = [step for step in c.steps if step.at <= c["n18"].at]
    c.cut("n18", c["n18"].at + 50)


def steep(c):
    first = c["ack7"].arrives
    for n in range(16, 48):
        c.move(f"n{n}", first + (n - 16) * 10)
    c.drop("ack16")
    c.cut("n40", c["n40"].at + 5)


def not_cut(c):
    c.move("n48", c["ack16"].arrives)
    c.cut("n48", c["n48"].at + 50)


def grows(c):
    for n in range(51, 60):
        c.move(f"n{n}", c["n50"].at + (n - 50) * 10)
    c.cut("n59", c["n59"].at + 5)


def ignored(c):
    c.move("n67", c["ack48"].arrives)
    c.cut("n67", c["n67"].at + 50)


SUBJECTS = {"marks-and-windows": marks}
