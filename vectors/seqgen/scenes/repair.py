"""Paths, loss and repair."""

from ..build import MS, US, VA, Scene, pattern
from ..wire import AR


def write_over_four_paths():
    s = Scene("write-over-four-paths", "A Write over four paths, nothing lost",
              "Twenty packets go round the four paths. Each path counts from the same ISN on its own. The last packet of "
              "each path asks for its acknowledgment, and the Write completes with the last of the four.",
              paths=4)
    s.delay = {0: 20 * US, 1: 23 * US, 2: 31 * US, 3: 26 * US}
    s.region("acceptor")
    w = s.write(0, 1, 19 * 256 + 77)
    sent = [s.tx(1000 + k * 150, w, k, k % 4, AR if 16 <= k < 19 else 0, tag=f"k{k}") for k in range(20)]
    acks = [s.ack(sent[16 + p].arrives, "acceptor", p, tag=f"ack{p}") for p in range(4)]
    last = max(a.arrives for a in acks)
    s.look(sent[18].arrives, "acceptor", VA + 18 * 256, pattern(1, 20 * 256)[18 * 256 : 19 * 256 + 77])
    s.finished(last, w, tag="done")
    s.end(last + 10 * US)
    s.keeps("REL-001", "REL-002", "PATH-002", "REL-014", "REL-015", "REL-013", "REL-022", "REL-025", "STRM-013", "STRM-014",
            "STRM-015", "STRM-016", "STRM-017", "STRM-009", "STRM-008", "STRM-019", "STRM-027", "ECN-001", "ECN-002", "ECN-003",
            "ECN-004", "PATH-001", "PKT-006", "PKT-012", "PKT-017")
    yield s
    yield s.wrong("one-number-space", "The sender counts one PSN through all paths instead of one for each.",
                  {"REL-002": "k5"}, one_space)
    yield s.wrong("one-port", "Path 2 leaves from the source port of path 1.", {"PATH-002": "k2"}, one_port)
    yield s.wrong("end-without-acknowledgment", "The receiver does not acknowledge the packet with EOM at once, but 5 us later.",
                  {"REL-015": "late"}, late_eom)
    yield s.wrong("short-piece", "A packet in the middle of the message carries 252 bytes, and the bytes cut off never go.",
                  {"STRM-014": "k5"}, short_piece, drop=("STRM-019",))
    yield s.wrong("other-key", "One packet names another key than the others of its message, and a region has that key.",
                  {"STRM-009": "k9"}, other_key)


def one_space(c):
    isn = c.connections[0]["initiator"]["isn"]
    # The first packet of each path starts at the ISN; from then on one counter serves all.
    for k in range(4, 20):
        c.set(f"k{k}", "CBH", psn=isn + k - 3)
    c.steps = [step for step in c.steps if step.at <= c["k5"].at]
    c.end(c["k5"].at + 5 * US)
    c.satisfies = ["REL-001", "PATH-002", "PATH-001"]


def one_port(c):
    for k in range(2, 20, 4):
        c[f"k{k}"].port = c["k1"].port
        step = c[f"k{k}"]
        step.fate = {"delivered": {"arrives_ns": step.at + c.delay[1]}}
    c.move("ack2", c["k18"].arrives)


def late_eom(c):
    c.shift(5 * US, "ack3")
    # It shows as soon as time has gone on without the acknowledgment.
    c.tags["late"] = c.after(c["k19"].arrives)


def short_piece(c):
    fields = c["k5"].fields
    fields["payload"]["payload"] = fields["payload"]["payload"][:-8]
    c.steps = [step for step in c.steps if not (hasattr(step, "what") and "memory" in step.what)]


def other_key(c):
    c.region("acceptor", rkey=0x00BADBAD)
    c.set("k9", "TAGH", rkey=0x00BADBAD)


def gap_and_repair():
    s = Scene("gap-and-repair", "A gap and its repair",
              "The third packet of path 0 is lost. The packet behind it opens a gap, the receiver says so at once, and the sender repeats "
              "exactly the missing packet: same path, same PSN, with RTX. Path 1 takes no notice. A second acknowledgment with "
              "the same gap causes nothing.", paths=2)
    s.delay = {0: 20 * US, 1: 27 * US}
    s.region("acceptor")
    w = s.write(0, 1, 12 * 256)
    sent = [s.tx(1000 + k * 400, w, k, k % 2, AR if k == 10 else 0, lost=k == 4, tag=f"k{k}") for k in range(12)]
    gap = s.ack(sent[6].arrives, "acceptor", 0, tag="gap")
    more = s.ack(sent[10].arrives, "acceptor", 0, tag="more")
    eom = s.ack(sent[11].arrives, "acceptor", 1, tag="eom")
    again = s.rtx(gap.arrives, sent[4], AR, tag="again")
    full = s.ack(again.arrives, "acceptor", 0, tag="full")
    s.finished(full.arrives, w, tag="done")
    s.end(full.arrives + 10 * US)
    assert more.arrives > again.at and eom.arrives < full.arrives
    s.keeps("REL-017", "REL-012", "REL-013", "REL-007", "REL-008", "REL-010", "REL-026", "REL-027", "REL-028", "REL-029", "REL-030",
            "REL-031", "REL-032", "REL-024", "REL-022", "PATH-003", "STRM-027", "ECN-006")
    yield s
    yield s.wrong("on-another-path", "The sender sends the missing bytes on path 1 under a new PSN and leaves the gap on path 0 as it is.",
                  {"REL-026": "again", "REL-031": "then"}, on_another_path,
                  drop=("REL-024", "REL-027", "REL-028", "REL-030", "REL-032", "PATH-003", "ECN-006"))
    yield s.wrong("without-rtx", "The retransmission does not bear RTX.", {"REL-028": "again"}, lambda c: c.set("again", "CBH", flags=AR),
                  drop=("ECN-006",))
    yield s.wrong("late", "The sender repairs 200 us after the gap was reported.", {"REL-031": "then"}, late_repair)
    yield s.wrong("and-what-followed", "The sender also repeats the packet behind the gap, which was reported as arrived.",
                  {"REL-030": "extra"}, and_what_followed)
    yield s.wrong("no-vector", "The receiver acknowledges the packet beyond the gap without a vector. Its next acknowledgment is right.",
                  {"REL-012": "gap", "REL-013": "gap"}, no_vector)
    yield s.wrong("cumulative-over-the-gap", "The receiver reports the packet behind the gap by CumPSN, so that the loss stays hidden.",
                  {"REL-007": "gap", "REL-012": "gap"}, over_the_gap,
                  drop=("REL-012", "REL-010", "REL-026", "REL-027", "REL-028", "REL-030", "REL-031", "REL-032", "REL-024", "PATH-003",
                        "ECN-006", "REL-008", "REL-013"))
    yield s.wrong("other-bytes", "The retransmission asks for a solicited event in MFlags that are not those of the first transmission: its "
                  "offset is that of the next piece.", {"REL-027": "again"}, other_bytes, drop=("STRM-027",))



def on_another_path(c):
    w4 = c["k4"].fields
    old = c["again"]
    c.drop("again", "full")
    import copy
    fields = copy.deepcopy(w4)
    fields["CBH"].update(path=1, psn=c["k11"].cbh["psn"] + 1, flags=AR)
    new = c.packet(old.at, "initiator", fields, 1, "ect0", "again")
    ack = c.ack(new.arrives, "acceptor", 1)
    c.move("done", ack.arrives)
    c["end"].at = ack.arrives + 10 * US
    c.tags["then"] = c.after(old.at)


def late_repair(c):
    gap = c["gap"].arrives
    c.shift(200 * US, "again", "full")
    c["done"].at += 200 * US
    c["end"].at += 200 * US
    c.tags["then"] = c.after(gap)


def and_what_followed(c):
    extra = c.rtx(c["again"].at + 100, c["k6"], AR, tag="extra")
    c.ack(extra.arrives, "acceptor", 0, tag="dup", port=51077)
    c.move("done", c["full"].arrives)


def no_vector(c):
    c.plain("gap")
    c.move("again", c["more"].arrives)
    c.move("full", c["again"].arrives)
    c["done"].at = c["full"].arrives


def over_the_gap(c):
    isn = c.connections[0]["initiator"]["isn"]
    c.drop("again", "full")
    for tag, cum in (("gap", isn + 3), ("more", isn + 5)):
        c.plain(tag)
        c.set(tag, "CBH", psn=cum)
    c["done"].at = max(c["more"].arrives, c["eom"].arrives)
    c["end"].at = c["done"].at + 10 * US


def other_bytes(c):
    c.set("again", "MSGH", offset=5 * 256)
    c.steps.remove(c["done"])


def lost_retransmission():
    s = Scene("lost-retransmission", "A lost retransmission, found by order of transmission",
              "The retransmission is lost as well. A packet that was sent after it arrives and is acknowledged: by the order of transmission, "
              "not of PSNs, that proves the second loss, and the sender repairs again at once.")
    s.region("acceptor", length=0x4000)
    w = s.write(0, 1, 6 * 256)
    sent = [s.tx(1000 + k * 400, w, k, lost=k == 2, tag=f"k{k}") for k in range(6)]
    gap = s.ack(sent[3].arrives, "acceptor", tag="gap")
    eom = s.ack(sent[5].arrives, "acceptor", tag="eom")
    first = s.rtx(gap.arrives, sent[2], AR, lost=True, tag="first")
    w2 = s.write(60 * US, 2, 200, va=VA + 0x1000)
    later_one = s.tx(60 * US, w2, tag="later")
    shows = s.ack(later_one.arrives, "acceptor", tag="shows")
    w3 = s.write(70 * US, 3, 100, va=VA + 0x2000)
    third = s.tx(70 * US, w3, tag="third")
    same = s.ack(third.arrives, "acceptor", tag="same")
    again = s.rtx(shows.arrives, sent[2], AR, tag="again")
    full = s.ack(again.arrives, "acceptor", tag="full")
    for w_, tag in ((w, "done1"), (w2, "done2"), (w3, "done3")):
        s.finished(full.arrives, w_, tag=tag)
    s.end(full.arrives + 10 * US)
    assert eom.arrives > first.at and same.arrives > again.at
    s.keeps("REL-031", "REL-034", "REL-033", "REL-032", "REL-026", "REL-027", "REL-028", "REL-030", "REL-010", "REL-013", "STRM-028",
            "STRM-023", "STRM-006", "REL-024", "REL-022")
    yield s
    yield s.wrong("waits", "The sender waits 60 us more before it repairs the lost retransmission.", {"REL-034": "then"}, waits)
    yield s.wrong("same-evidence", "The sender repairs a third time when another acknowledgment shows the gap, though nothing sent after the second "
                  "repair has arrived.", {"REL-033": "extra"}, same_evidence)
    yield s.wrong("by-number", "The sender repeats the packet on the second acknowledgment of the first gap, which was sent before the first repair "
                  "can have arrived.", {"REL-033": "extra"}, by_number)


def waits(c):
    by = 60 * US
    c.shift(by, "again", "full")
    for tag in ("done1", "done2", "done3", "end"):
        c[tag].at += by
    c.tags["then"] = c.after(c["shows"].arrives)


def same_evidence(c):
    extra = c.rtx(c["same"].arrives, c["k2"], AR, tag="extra")
    c.ack(extra.arrives, "acceptor", port=51077)


def by_number(c):
    c.rtx(c["eom"].arrives, c["k2"], AR, tag="extra", lost=True)


def tail_loss():
    s = Scene("tail-loss-and-probe", "The last packets are lost: a probe finds out",
              "Behind the last packets comes nothing that could show a gap. Two milliseconds after the last sign of life the sender asks with "
              "PATH_PROBE. The answer lacks both packets, and both are repeated at once, long before a timeout.")
    s.region("acceptor")
    w = s.write(0, 1, 2 * 256)
    a = [s.tx(1000 + k * 400, w, k) for k in range(2)]
    ok = s.ack(a[1].arrives, "acceptor")
    s.finished(ok.arrives, w)
    w2 = s.write(50 * US, 2, 3 * 256, va=VA + 0x1000)
    b = [s.tx(50 * US + k * 400, w2, k, lost=k > 0, tag=f"b{k}") for k in range(3)]
    part = s.ack(b[0].arrives + 8 * US, "acceptor", tag="part")
    probe = s.probe(part.arrives + 2 * MS, "initiator", 0, 1, b[2].cbh["psn"], tag="probe")
    answer = s.probe_ack(probe.arrives, probe, tag="answer")
    again = [s.rtx(answer.arrives, b[1 + k], delay=20 * US + k * 400, tag=f"again{k}") for k in range(2)]
    full = s.ack(again[1].arrives, "acceptor", tag="full")
    s.finished(full.arrives, w2, tag="done")
    s.end(full.arrives + 10 * US)
    s.keeps("REL-019", "REL-023", "REL-048", "REL-058", "REL-036", "REL-037", "REL-038", "REL-039", "REL-040", "REL-026", "REL-028", "PATH-004",
            "CONN-014", "REL-032", "REL-015")
    yield s
    yield s.wrong("timeout-without-probe", "The sender asks nothing and repeats the first packet after its timeout.",
                  {"REL-035": "again0", "REL-048": "port"}, without_probe,
                  drop=("REL-058", "REL-036", "REL-037", "REL-038", "REL-039", "REL-040", "PATH-004", "CONN-014"))
    yield s.wrong("probe-late", "The probe comes 3 ms later than it is due.", {"REL-048": "probe"}, probe_late)
    yield s.wrong("probe-early", "The probe comes after 300 us already.", {"REL-058": "probe"}, probe_early)
    yield s.wrong("probe-elsewhere", "The probe leaves from another source port than the data of its path.", {"PATH-004": "probe"},
                  lambda c: setattr(c["probe"], "port", 50077))
    yield s.wrong("probe-too-low", "The probe names the last but one PSN as the highest that was sent.", {"REL-036": "probe"},
                  lambda c: c.set("probe", "PATH_PROBE", highest_psn=c["b1"].cbh["psn"]))
    yield s.wrong("answer-too-much", "The answer reports one of the lost packets as arrived, so that the sender repeats the other one only.",
                  {"REL-038": "answer"}, too_much, drop=("REL-015",))
    yield s.wrong("half-a-repair", "The sender repeats one of the two packets that the answer lacks.", {"REL-040": "end"}, half_a_repair,
                  drop=("REL-015",))
    yield s.wrong("no-echo", "The answer does not echo the timestamp of the probe.", {"REL-037": "answer"},
                  lambda c: c.set("answer", "PATH_PROBE_ACK", timestamp_echo=0x01020304))


def without_probe(c):
    heard = c["part"].arrives
    c.drop("probe", "answer", "again1", "full", "done")
    c.move("again0", heard + 10 * MS)
    c["again0"].port = 50100
    c.steps.insert(c.steps.index(c["again0"]), c.steps.pop(c.steps.index(
        c.event(heard + 10 * MS, "initiator", "port_change", "port", path=0, source_port=50100))))
    c.cut("again0", heard + 10 * MS + US)


def probe_early(c):
    by = 300 * US - 2 * MS
    c.shift(by, "probe", "answer", "again0", "again1", "full")
    c["done"].at += by
    c["end"].at += by


def probe_late(c):
    by = 3 * MS
    c.shift(by, "probe", "answer", "again0", "again1", "full")
    c["done"].at += by
    c["end"].at += by


def too_much(c):
    c.set("answer", "PATH_PROBE_ACK", cum_psn=c["b1"].cbh["psn"])
    c.drop("again0")
    c.move("again1", c["answer"].arrives)
    c.cut("again1", c["again1"].at + 10 * US)


def half_a_repair(c):
    c.drop("again1")
    c.cut("again0", c["again0"].at + 10 * US)


SUBJECTS = {
    "write-over-four-paths": write_over_four_paths,
    "gap-and-repair": gap_and_repair,
    "lost-retransmission": lost_retransmission,
    "tail-loss": tail_loss,
}
