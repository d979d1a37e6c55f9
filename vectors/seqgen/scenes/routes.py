"""Other routes, dead paths, timeouts."""

from ..build import MS, US, VA, Scene, pattern
from ..wire import AR


def re_entropy():
    s = Scene("re-entropy", "Another source port, and the grace period",
              "The old route loses PSN 1002 and delays 1003; then the sender gives the path another source port and tells of it with PATH_CHANGE. PSN, "
              "epoch and window go on. On the new route 1004 overtakes 1003: within the grace period that gap proves nothing. 1003 comes in time, 1002 "
              "is still missing at its end and is repaired at that moment, on the new route.", features=("CHANGE",))
    s.region("acceptor", length=0x4000)
    w = s.write(0, 1, 2 * 256)
    a = [s.tx(1000 + k * 400, w, k) for k in range(2)]
    ok = s.ack(a[1].arrives, "acceptor")
    s.finished(ok.arrives, w)
    change, new = 202 * US, 50100
    w2 = s.write(200 * US, 2, 4 * 256, va=VA + 0x1000)
    lost = s.tx(200 * US, w2, 0, lost=True, tag="lost")
    late = s.tx(201 * US, w2, 1, late=change + 24 * US, tag="late")
    s.event(change, "initiator", "port_change", path=0, source_port=new)
    s.control(change, "initiator", "PATH_CHANGE", 1, {"PATH_CHANGE": dict(source_port=new, next_psn=late.cbh["psn"] + 1)}, port=new, tag="change")
    over = s.tx(change + US, w2, 2, port=new, tag="over")
    gap = s.ack(over.arrives, "acceptor", tag="gap")
    last = s.tx(change + 5 * US, w2, 3, port=new, tag="last")
    part = s.ack(last.arrives, "acceptor", tag="part")
    end = gap.arrives + 10 * US
    s.event(end, "initiator", "timer", name="grace", tag="grace")
    again = s.rtx(end, lost, AR, port=new, tag="again")
    full = s.ack(again.arrives, "acceptor", tag="full")
    s.finished(full.arrives, w2, tag="done")
    s.end(full.arrives + 20 * US)
    assert late.arrives < last.arrives and part.arrives < end
    s.keeps("PATH-003", "PATH-007", "PATH-012", "PATH-013", "PATH-014", "PATH-015", "PATH-016", "REL-002", "REL-026", "REL-031", "REL-017",
            "PKT-010", "STRM-027")
    yield s
    yield s.wrong("no-grace", "The sender repairs both packets when the gap appears.", {"PATH-013": "early0", "REL-032": "early0"}, no_grace,
                  drop=("REL-031",))
    yield s.wrong("grace-without-end", "The sender repairs the lost packet 30 us after the grace period.", {"REL-031": "then"}, endless)
    yield s.wrong("unannounced", "No PATH_CHANGE tells of the new port.", {"PATH-014": "over"}, lambda c: c.drop("change"),
                  drop=("PATH-015", "PATH-016", "PKT-010"))
    yield s.wrong("next-psn-passed-over", "PATH_CHANGE names a PSN after the first one on the new route.", {"PATH-015": "change"},
                  lambda c: c.set("change", "PATH_CHANGE", next_psn=c["last"].cbh["psn"]))
    yield s.wrong("new-epoch", "The sender begins a new epoch with the new port.", {"PATH-012": "over", "PATH-001": "over"}, new_epoch,
                  drop=("PATH-003", "PATH-007", "PATH-013", "PATH-014", "PATH-016", "REL-026", "REL-031", "REL-017"))
    yield s.wrong("repair-on-the-old-route", "The repair leaves from the old source port.", {"PATH-003": "again"},
                  lambda c: setattr(c["again"], "port", 50000))


def no_grace(c):
    at = c["gap"].arrives
    c.steps.remove(c["grace"])
    c.move("again", at)
    c.tags["early0"] = c["again"]
    extra = c.rtx(at, c["late"], port=50100, delay=20 * US + 400)
    c.move("full", c["again"].arrives)
    c["done"].at = c["full"].arrives
    c.ack(extra.arrives, "acceptor", port=51077)


def endless(c):
    at = c["grace"].at
    c.shift(30 * US, "again", "full")
    for tag in ("done", "end"):
        c[tag].at += 30 * US
    c.tags["then"] = c.after(at)


def new_epoch(c):
    c.set("over", "CBH", epoch=1)
    c.cut("over", c["over"].at + 100)


PSN = 0x1000


def retirement():
    s = Scene("path-retired-and-opened-again", "A dead path is retired, its packets move, and it is opened again",
              "Path 1 goes silent: 1002 is lost, 1003 arrives but its acknowledgment is lost. Three timeouts in a row, with another port after each, and "
              "the path has failed, since path 0 is acknowledged. PATH_RETIRED tells for good what has arrived: only 1002 moves, under a new PSN of path 0. A "
              "late packet of the old epoch finds newer data and is dropped. The next epoch starts at final CumPSN + 257, after its probe was answered.",
              paths=2, features=("RETIRE",))
    s.region("acceptor", length=0x4000)
    s.starts = {(0, "initiator", 1, 1): PSN + 1 + 257}
    w = s.write(0, 1, 4 * 256)
    a = [s.tx(1000 + k * 500, w, k, k % 2, AR if k == 2 else 0) for k in range(4)]
    b = [s.ack(a[2 + p].arrives, "acceptor", p) for p in range(2)]
    s.finished(max(x.arrives for x in b), w)
    w2 = s.write(1 * MS, 2, 5 * 256, va=VA + 0x1000)
    at = 1 * MS
    sent = [s.tx(at + k * 500, w2, k, k % 2, lost=k == 1, tag=f"k{k}") for k in range(5)]
    s.ack(sent[4].arrives, "acceptor", 0, tag="p0")
    s.ack(sent[3].arrives, "acceptor", 1, lost=True, tag="p1")
    quiet = sent[3].at
    s.probe(quiet + 2 * MS, "initiator", 1, 1, PSN + 3, lost=True)
    moved, late = 1200 * MS, 150 * MS
    s.event(quiet + 10 * MS, "initiator", "timer", name="retransmission")
    s.event(quiet + 10 * MS, "initiator", "port_change", path=1, source_port=50101)
    r1 = s.rtx(quiet + 10 * MS, sent[1], port=50101, late=late, tag="r1")
    s.probe(r1.at + 2 * MS, "initiator", 1, 2, PSN + 3, lost=True, port=50101)
    w3 = s.write(20 * MS, 3, 100, va=VA + 0x2000)
    alive = s.tx(20 * MS, w3, 0, 0)
    s.ack(alive.arrives, "acceptor", 0)
    s.event(r1.at + 20 * MS, "initiator", "timer", name="retransmission")
    s.event(r1.at + 20 * MS, "initiator", "port_change", path=1, source_port=50102, tag="port2")
    r2 = s.rtx(r1.at + 20 * MS, sent[1], port=50102, lost=True, tag="r2")
    s.probe(r2.at + 2 * MS, "initiator", 1, 3, PSN + 3, lost=True, port=50102)
    s.event(r2.at + 40 * MS, "initiator", "timer", name="retransmission", tag="third")
    retire = s.control(r2.at + 40 * MS, "initiator", "PATH_RETIRE", 4, {"PATH_RETIRE": dict(highest_psn=PSN + 3, reason=0)}, path=1,
                       port_path=0, tag="retire")
    retired = s.control(retire.arrives, "acceptor", "PATH_RETIRED", 4, {}, path=1, port_path=0, tag="retired")
    retired.ack = (1, 0)
    move = s.tx(retired.arrives, w2, 1, 0, AR, tag="move")
    full = s.ack(move.arrives, "acceptor", 0, tag="full")
    s.finished(full.arrives, w2, tag="done2")
    s.finished(full.arrives, w3, tag="done3")
    w4 = s.write(100 * MS, 4, 256, va=VA + 0x1100)
    newer = s.tx(100 * MS, w4, 0, 0)
    ack4 = s.ack(newer.arrives, "acceptor", 0)
    s.finished(ack4.arrives, w4)
    s.look(late + 10 * US, "acceptor", VA + 0x1100, w4.data, tag="look")
    probe = s.probe(moved, "initiator", 1, 5, PSN + 1 + 256, epoch=1, port=50201, tag="probe")
    answer = s.probe_ack(probe.arrives, probe, tag="answer")
    w5 = s.write(answer.arrives, 5, 200, va=VA + 0x3000)
    fresh = s.tx(answer.arrives, w5, 0, 1, psn=PSN + 1 + 257, epoch=1, port=50201, tag="fresh")
    ack5 = s.ack(fresh.arrives, "acceptor", 1, epoch=1, tag="ack5")
    s.finished(ack5.arrives, w5, tag="done5")
    s.end(ack5.arrives + 10 * US)
    s.keeps("PATH-019", "PATH-020", "PATH-021", "PATH-022", "PATH-023", "PATH-024", "PATH-025", "PATH-026", "PATH-028",
            "PATH-030", "PATH-031", "PATH-032", "PATH-033", "PATH-034", "PATH-036", "PATH-037", "PATH-041", "REL-035", "REL-041", "REL-043",
            "REL-048", "STRM-027", "STRM-028", "REL-036", "REL-037")
    yield s
    later = ("PATH-028", "PATH-033", "PATH-034", "PATH-036", "PATH-037")
    yield s.wrong("moved-before-the-answer", "The sender moves the packet together with PATH_RETIRE.", {"PATH-030": "move", "REL-026": "move"},
                  moved_early, drop=("PATH-031", "PATH-032", "REL-037", *later))
    yield s.wrong("moved-all", "The sender also moves the packet that PATH_RETIRED reports as arrived.", {"PATH-031": "extra"}, moved_all,
                  drop=("REL-037", *later))
    yield s.wrong("report-without-vector", "PATH_RETIRED leaves out the packet beyond the gap, and the sender moves it as well.",
                  {"PATH-026": "retired"}, without_vector, drop=("REL-037", *later))
    yield s.wrong("given-up-too-soon", "The path is given up after two timeouts.", {"PATH-021": "retire"}, too_soon,
                  drop=("PATH-020", "PATH-025", "PATH-026", "PATH-030", "PATH-031", "PATH-032", "STRM-027", "PATH-024", "STRM-028", "PATH-019",
                        "PATH-041", "REL-037", "REL-043", *later))
    yield s.wrong("late-packet-placed", "The receiver places the late packet of the old epoch over the newer data.", {"PATH-028": "look"},
                  lambda c: c["look"].what["memory"].update(hex=pattern(2, 1280)[256:512].hex()))
    yield s.wrong("late-packet-acknowledged", "The receiver acknowledges the late packet of the old epoch.", {"PATH-029": "ghost", "PATH-008": "ghost"},
                  late_acknowledged)
    yield s.wrong("next-number-goes-on", "The next epoch starts with the PSN after the last one of the old epoch.", {"PATH-033": "fresh"}, goes_on,
                  drop=("PATH-034",))
    yield s.wrong("no-probe", "The sender sends data in the new epoch without a probe.", {"PATH-036": "fresh"}, no_probe,
                  drop=("PATH-034", "PATH-037", "REL-037"))
    yield s.wrong("counts-go-on", "ECT_Count of the new epoch goes on from the old one.", {"PATH-034": "ack5", "ECN-004": "ack5"},
                  lambda c: c.set("ack5", "ACK", ect_count=4))


def moved_early(c):
    at, late = c["retire"].at, c["move"].at
    c.move("move", at)
    c["move"].fate = {"delivered": {"arrives_ns": at + 20 * US + 400}}
    c.move("full", c["move"].arrives)
    for tag in ("done2", "done3"):
        c[tag].at = c["full"].arrives
    c.cut("done3", late + 60 * US)


def moved_all(c):
    w2 = c["k3"].fields
    import copy
    fields = copy.deepcopy(w2)
    fields["CBH"].update(path=0, epoch=0, psn=c["move"].cbh["psn"] + 1)
    extra = c.packet(c["move"].at + 400, "initiator", fields, 0, "ect0", "extra")
    c.ack(extra.arrives + 5 * US, "acceptor", 0)
    c.cut("done3", c["done3"].at + 50 * US)


def without_vector(c):
    import copy
    c.set("retired", "PATH_RETIRED", sack="0" * 64)
    fields = copy.deepcopy(c["k3"].fields)
    fields["CBH"].update(path=0, epoch=0, psn=c["move"].cbh["psn"] + 1)
    extra = c.packet(c["move"].at + 400, "initiator", fields, 0, "ect0", "extra")
    ack = c.ack(extra.arrives + 5 * US, "acceptor", 0)
    c["done2"].at = c["done3"].at = ack.arrives
    c.cut("done3", c["done3"].at + 50 * US)


def too_soon(c):
    c.move("retire", c["r2"].at)
    c.steps.remove(c["third"])
    c.steps.remove(c["r2"])
    c.steps.remove(c["port2"])
    c.cut("retire", c["retire"].at + 10 * US)


def late_acknowledged(c):
    at = c["r1"].arrives
    ghost = c.ack(at, "acceptor", 1, tag="ghost")
    c.cut("look", ghost.arrives + 10 * US)
    c.satisfies = [x for x in c.satisfies if x not in ("PATH-033", "PATH-034", "PATH-036", "PATH-037", "REL-037")]


def goes_on(c):
    c.set("fresh", "CBH", psn=PSN + 4)
    c.cut("fresh", c["fresh"].at + 10 * US)


def no_probe(c):
    c.drop("probe", "answer")
    c.cut("fresh", c["fresh"].at + 10 * US)


def timeouts():
    s = Scene("timeouts-back-off", "Probe and repairs lost: timeouts in a row",
              "A Write of one packet is lost, and so are the probe and the first repair. The retransmission timeout has its minimum of 10 ms and then "
              "doubles; each repair leaves from another port and is followed by a probe of its own. The third transmission arrives.")
    s.region("acceptor")
    w = s.write(0, 1, 256)
    a = s.tx(1000, w)
    ok = s.ack(a.arrives, "acceptor")
    s.finished(ok.arrives, w)
    w2 = s.write(1 * MS, 2, 256, va=VA + 0x1000)
    lost = s.tx(1 * MS, w2, lost=True, tag="lost")
    psn = lost.cbh["psn"]
    s.probe(lost.at + 2 * MS, "initiator", 0, 1, psn, lost=True, tag="probe1")
    s.event(lost.at + 10 * MS, "initiator", "timer", name="retransmission", tag="timer1")
    s.event(lost.at + 10 * MS, "initiator", "port_change", path=0, source_port=50100, tag="port1")
    one = s.rtx(lost.at + 10 * MS, lost, lost=True, port=50100, tag="one")
    s.probe(one.at + 2 * MS, "initiator", 0, 2, psn, lost=True, port=50100, tag="probe2")
    s.event(one.at + 20 * MS, "initiator", "timer", name="retransmission", tag="timer2")
    s.event(one.at + 20 * MS, "initiator", "port_change", path=0, source_port=50101, tag="port2")
    two = s.rtx(one.at + 20 * MS, lost, port=50101, tag="two")
    full = s.ack(two.arrives, "acceptor", tag="full")
    s.finished(full.arrives, w2, tag="done")
    s.end(full.arrives + 10 * US)
    s.keeps("REL-035", "REL-036", "REL-041", "REL-042", "REL-043", "REL-048", "REL-026", "REL-028", "REL-027", "REL-024", "CONN-014", "REL-057", "REL-058", "PATH-019")
    yield s
    yield s.wrong("no-back-off", "The second timeout comes 10 ms after the first.", {"REL-043": "two", "REL-057": "two"}, lambda c: sooner(c, "two", 10 * MS))
    yield s.wrong("under-the-minimum", "The first timeout comes after 5 ms.", {"REL-041": "one", "REL-057": "one"}, under,
                  drop=("REL-042", "REL-043", "REL-024", "REL-035", "PATH-019"))
    yield s.wrong("same-port", "Both repairs leave from the port of the first transmission.", {"PATH-019": "two"}, same_port)
    yield s.wrong("never-again", "The sender does nothing when its timeout has passed.", {"REL-042": "end"}, never,
                  drop=("REL-041", "REL-043", "REL-057", "REL-026", "REL-028", "REL-027", "REL-024", "REL-035", "PATH-019"))


def sooner(c, tag, by):
    c.shift(-by, "two", "full", "timer2", "port2")
    for tag in ("done", "end"):
        c[tag].at -= by


def under(c):
    c.shift(-5 * MS, "one", "timer1", "port1")
    c.cut("one", c["one"].at + 1 * MS)


def same_port(c):
    for tag in ("one", "probe2", "two"):
        c[tag].port = 50000
    for tag in ("port1", "port2"):
        c.steps.remove(c[tag])


def never(c):
    c.cut("probe1", c["lost"].at + 15 * MS)


SUBJECTS = {"re-entropy": re_entropy, "path-retirement": retirement, "timeouts": timeouts}
