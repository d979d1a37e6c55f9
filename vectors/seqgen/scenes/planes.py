"""More than one plane."""

from ..build import MS, US, VA, Scene, pattern
from ..wire import AR

PSN = 0x1000
DARK, LIVE = 1, 0


def failure():
    s = Scene("plane-failure", "A plane goes dark, and its paths are retired",
              "Two planes, four paths: 0 and 2 in plane 0, 1 and 3 in plane 1, which goes dark. Its paths time out three times in a row, 10, 20 and 40 ms after each other, with another "
              "port after each timeout, while plane 0 goes on. Then both are retired with control in plane 0, their packets move to the paths there, and all work completes "
              "without an error, about 70 ms late. A packet that the dark plane has held comes out much later, for an epoch that is over, and is dropped.",
              paths=4, features=("RETIRE",), planes=(("198.51.100.1",), ("198.51.100.2",)))
    s.region("acceptor", length=0x4000)
    w = s.write(0, 1, 8 * 256)
    a = [s.tx(1000 + k * 500, w, k, k % 4, AR if 4 <= k < 7 else 0, tag=f"a{k}") for k in range(8)]
    b = [s.ack(a[4 + p].arrives, "acceptor", p) for p in range(4)]
    s.finished(b[3].arrives, w)
    w2 = s.write(1 * MS, 2, 5 * 256, va=VA + 0x1000)
    k = [s.tx(1 * MS + n * 500, w2, n, n % 4, lost=n % 2 == DARK, tag=f"k{n}") for n in range(5)]
    s.ack(k[4].arrives, "acceptor", 0)
    s.ack(k[2].arrives + 8 * US, "acceptor", 2)
    w3 = s.write(20 * MS, 3, 300, va=VA + 0x2000, tag="post3")
    for n in range(2):
        on = s.tx(20 * MS + n * 500, w3, n, 2 * n, AR, tag=f"on{n}")
        s.ack(on.arrives, "acceptor", 2 * n, tag=f"on-ack{n}")
    late, last = 150 * MS, {}
    for path in (1, 3):
        lost = k[path]
        ports = [50000 + path, 50010 + path, 50020 + path]
        at, sent = lost.at, lost
        for n, wait in enumerate((10 * MS, 20 * MS)):
            s.probe(at + 2 * MS, "initiator", path, path * 16 + n, PSN + 2, lost=True, port=ports[n])
            at += wait
            s.event(at, "initiator", "timer", name="retransmission")
            s.event(at, "initiator", "port_change", path=path, source_port=ports[n + 1])
            held = {"late": late} if (path, n) == (1, 0) else {"lost": True}
            sent = s.rtx(at, lost, port=ports[n + 1], tag=f"r{path}{n}", **held)
        s.probe(at + 2 * MS, "initiator", path, path * 16 + 2, PSN + 2, lost=True, port=ports[2])
        last[path] = at + 40 * MS
        assert sent.at == at
    for path, over in ((1, 0), (3, 2)):
        at = last[path]
        s.event(at, "initiator", "timer", name="retransmission", tag=f"third{path}")
        retire = s.control(at, "initiator", "PATH_RETIRE", path * 16 + 3, {"PATH_RETIRE": dict(highest_psn=PSN + 2, reason=0)}, path=path,
                           port_path=over, tag=f"retire{path}")
        retired = s.control(retire.arrives, "acceptor", "PATH_RETIRED", path * 16 + 3, {}, path=path, port_path=over, tag=f"retired{path}")
        retired.ack = (path, 0)
        move = s.tx(retired.arrives, w2, path, over, AR, tag=f"move{path}")
        full = s.ack(move.arrives, "acceptor", over, tag=f"full{path}")
    s.finished(full.arrives, w2, tag="done2")
    s.finished(full.arrives, w3, tag="done3")
    w4 = s.write(100 * MS, 4, 256, va=VA + 0x1100)
    newer = s.tx(100 * MS, w4, 0, 2)
    ack4 = s.ack(newer.arrives, "acceptor", 2)
    s.finished(ack4.arrives, w4)
    s.look(late + 10 * US, "acceptor", VA + 0x1100, w4.data, tag="look")
    s.end(late + 20 * US)
    s.keeps("PLN-001", "PLN-002", "PLN-005", "PLN-006", "PLN-008", "PLN-011", "PATH-004", "PATH-009", "PATH-019", "PATH-020", "PATH-021", "PATH-022", "PATH-023",
            "PATH-024", "PATH-025", "PATH-026", "PATH-028", "PATH-030", "PATH-031", "PATH-032", "PATH-041", "REL-035", "REL-041", "REL-042", "REL-043",
            "REL-048", "REL-057", "STRM-027", "STRM-028", "CC-001", "CC-002")
    answered = ("PATH-026", "PATH-030", "PATH-031", "PATH-032")
    later = ("PLN-006", "PATH-028", "PATH-041")
    yield s
    yield s.wrong("answered-in-the-dark", "The answer to the first PATH_RETIRE leaves in the plane of the path that it speaks of, and is lost there.",
                  {"PLN-011": "retired1"}, in_the_dark, drop=answered[1:] + later)
    yield s.wrong("across", "PATH_RETIRE goes from the address of plane 0 to the address of plane 1, which no network need join.", {"PLN-002": "retire1"}, across,
                  drop=answered + later + ("PLN-011", "PATH-025"))
    yield s.wrong("acknowledged-in-the-dark", "The receiver acknowledges a packet that came in plane 0 in the plane that is dark.", {"PLN-008": "on-ack0"}, acked_in_the_dark,
                  drop=answered + later + ("PLN-011", "PATH-025", "PATH-020", "PATH-021", "PATH-022", "PATH-023", "PATH-024", "REL-043", "STRM-027"))
    yield s.wrong("other-plane", "The first packet of path 2 leaves in plane 1.", {"PLN-001": "a2"}, other_plane,
                  drop=[c for c in s.satisfies if c not in ("PLN-002",)])
    yield s.wrong("moved-before-the-answer", "The sender moves the packet together with PATH_RETIRE.", {"PATH-030": "move1", "REL-026": "move1"}, moved_early,
                  drop=answered[2:] + later + ("PLN-011", "PATH-025", "PATH-026"))
    yield s.wrong("late-packet-placed", "The receiver places the packet of the old epoch over the newer data.", {"PATH-028": "look"},
                  lambda c: c["look"].what["memory"].update(hex=pattern(2, 1280)[256:512].hex()))
    yield s.wrong("everything-waits", "Work that is posted in the dark waits for more than 20 ms, although plane 0 works.", {"PATH-009": "then", "PLN-005": "then"},
                  waits)
    yield s.wrong("reported", "The Write with packets in the dark plane is reported as failed.", {"PLN-006": "done2", "PATH-041": "done2"}, reported,
                  drop=("STRM-027",))


def in_the_dark(c):
    answer = c["retired1"]
    answer.plane = answer.to_plane = DARK
    answer.fate = {"lost": None}
    c.cut("retired1", answer.at + 400)


def acked_in_the_dark(c):
    ack = c["on-ack0"]
    ack.plane = ack.to_plane = DARK
    ack.fate = {"lost": None}
    c.cut("on-ack0", ack.at + 300)


def across(c):
    c["retire1"].to_plane = DARK
    c["retire1"].fate = {"lost": None}
    c.cut("retire1", c["retire1"].at + 400)


def other_plane(c):
    c["a2"].plane = c["a2"].to_plane = DARK
    c.cut("a2", c["a2"].at + 100)


def moved_early(c):
    at = c["retire1"].at
    c.move("move1", at)
    c["move1"].fate = {"delivered": {"arrives_ns": at + 20 * US + 400}}
    c.move("full1", c["move1"].arrives)
    c.cut("retire1", at + 500)


def waits(c):
    c.shift(25 * MS, "on0", "on-ack0", "on1", "on-ack1")
    c.tags["then"] = min((step for step in c.steps if step.at > 30 * MS), key=lambda step: step.at)


def reported(c):
    c["done2"].what["completion"].update(status="IBV_WC_RETRY_EXC_ERR", byte_len=0)
    c.drop("done3")
    c.cut("done2", c["done2"].at + 1000)


SUBJECTS = {"plane-failure": failure}
