"""Numbers, marks, order and duplicates."""

from ..build import US, VA, Scene, pattern
from ..wire import AR, DUPLICATE_SEEN


def ecn_marks():
    s = Scene("ecn-marks", "Marks, and an acknowledgment for each change of CE state",
              "The third and the fourth packet are marked on the way. The first marked one and the first clear one after them are "
              "acknowledged at once, so that the sender learns of the queue, and of its end, without delay. The counts are totals.")
    s.region("acceptor")
    w = s.write(0, 1, 6 * 256)
    sent = [s.tx(1000 + k * 400, w, k, ce=k in (2, 3), tag=f"k{k}") for k in range(6)]
    s.ack(sent[2].arrives, "acceptor", tag="on")
    s.ack(sent[4].arrives, "acceptor", tag="off")
    last = s.ack(sent[5].arrives, "acceptor", tag="last")
    s.finished(last.arrives, w)
    s.end(last.arrives + 10 * US)
    s.keeps("ECN-001", "ECN-002", "ECN-003", "ECN-004", "ECN-008", "ECN-009", "REL-015")
    yield s
    yield s.wrong("mark-told-late", "The first marked packet is not acknowledged at once.", {"ECN-009": "k5"}, told_late)
    yield s.wrong("mark-not-counted", "The first acknowledgment does not count the mark.", {"ECN-003": "on"},
                  lambda c: c.set("on", "ACK", ce_count=0))
    yield s.wrong("marked-counted-twice", "A marked packet is counted as unmarked too.", {"ECN-004": "on"},
                  lambda c: c.set("on", "ACK", ect_count=3), drop=("ECN-008",))
    yield s.wrong("count-since-the-last", "The last acknowledgment counts what has come since the one before instead of all.",
                  {"ECN-003": "last", "ECN-004": "last", "ECN-008": "last"}, lambda c: c.set("last", "ACK", ce_count=0, ect_count=1))
    yield s.wrong("data-not-capable", "A data packet is sent as Not-ECT.", {"ECN-001": "k1"}, lambda c: setattr(c["k1"], "ecn", "not_ect"))
    yield s.wrong("acknowledgment-capable", "An acknowledgment is sent as ECT(0).", {"ECN-002": "off"},
                  lambda c: setattr(c["off"], "ecn", "ect0"))


def told_late(c):
    c.drop("on")
    c.tags["k5"] = c.after(c["k2"].arrives)


def marked_repair():
    s = Scene("marked-repair-and-duplicate", "A mark on a retransmission, and one on a duplicate",
              "The second packet is held up, its repair arrives marked and counts like any first arrival. When the held-up original comes at last it "
              "is a duplicate: acknowledged at once, but not counted.")
    s.region("acceptor")
    w = s.write(0, 1, 4 * 256)
    sent = [s.tx(1000 + k * 400, w, k, tag=f"k{k}", **({"late": 200 * US} if k == 1 else {})) for k in range(4)]
    gap = s.ack(sent[2].arrives, "acceptor", tag="gap")
    s.ack(sent[3].arrives, "acceptor", tag="eom")
    again = s.rtx(gap.arrives, sent[1], ce=True, tag="again")
    full = s.ack(again.arrives, "acceptor", tag="full")
    s.finished(full.arrives, w)
    s.ack(sent[1].arrives, "acceptor", tag="duplicate", port=51000 + 77)
    s.end(sent[1].arrives + 30 * US)
    s.keeps("ECN-003", "ECN-004", "ECN-005", "ECN-006", "ECN-009", "REL-018", "REL-020", "REL-021", "REL-022", "REL-024", "PATH-017")
    yield s
    yield s.wrong("repair-not-counted", "The marked retransmission is not counted.", {"ECN-006": "full"},
                  lambda c: c.set("full", "ACK", ce_count=0), drop=("ECN-003",))
    yield s.wrong("duplicate-counted", "The duplicate is counted as a further packet.", {"ECN-005": "duplicate"},
                  lambda c: c.set("duplicate", "ACK", ect_count=4))
    yield s.wrong("duplicate-not-told", "The acknowledgment of the duplicate does not say that one was seen.", {"REL-020": "duplicate"},
                  lambda c: c.set("duplicate", "ACK", ack_flags=0x8000))
    yield s.wrong("duplicate-made-up", "The acknowledgment of the repair tells of a duplicate that has not come.", {"REL-021": "full"},
                  lambda c: c.set("full", "ACK", ack_flags=0x8000 | DUPLICATE_SEEN))
    yield s.wrong("duplicate-in-silence", "The duplicate is dropped without a word.", {"REL-018": "end"}, lambda c: c.drop("duplicate"),
                  drop=("REL-020", "PATH-017", "ECN-005"))
    yield s.wrong("echo-of-the-original", "The acknowledgment of the repair echoes the timestamp of the original transmission.",
                  {"REL-022": "full"}, lambda c: c.set("full", "ACK", timestamp_echo=c["k1"].cbh["timestamp"]))


def psn_wrap():
    s = Scene("psn-wrap-with-loss", "Loss where the PSNs wrap",
              "The path starts at fffffffe. The last PSN before the wrap is lost: the vector counts on from CumPSN fffffffe, so its second bit is "
              "PSN 0. After the repair CumPSN goes on to 1.", isn=(0xFFFFFFFE, 0x2000))
    s.region("acceptor")
    w = s.write(0, 1, 4 * 256)
    sent = [s.tx(1000 + k * 400, w, k, lost=k == 1, tag=f"k{k}") for k in range(4)]
    gap = s.ack(sent[2].arrives, "acceptor", tag="gap")
    s.ack(sent[3].arrives, "acceptor", tag="eom")
    again = s.rtx(gap.arrives, sent[1], AR, tag="again")
    full = s.ack(again.arrives, "acceptor", tag="full")
    s.finished(full.arrives, w, tag="done")
    s.end(full.arrives + 10 * US)
    s.keeps("CONV-004", "CONV-005", "REL-001", "REL-002", "REL-017", "REL-026", "REL-031", "REL-007", "REL-008", "REL-009", "REL-013")
    yield s
    yield s.wrong("zero-left-out", "The sender passes over PSN 0.", {"CONV-004": "k2"}, zero_left_out,
                  drop=("CONV-005", "REL-026", "REL-031", "REL-009", "REL-007", "REL-008", "REL-013", "REL-017"))
    yield s.wrong("stuck-before-the-wrap", "CumPSN does not go past ffffffff.", {"CONV-005": "full", "REL-010": "full", "REL-013": "full"},
                  stuck, drop=("STRM-027",))
    yield s.wrong("compared-as-plain-numbers", "The receiver takes 0 to be before fffffffe and reports nothing beyond the gap.",
                  {"REL-012": "gap", "REL-013": "gap"}, plain_numbers, drop=("REL-008",))


def zero_left_out(c):
    for tag, psn in (("k2", 1), ("k3", 2)):
        c.set(tag, "CBH", psn=psn)
    c.cut("k3", c["k3"].at + 1000)


def stuck(c):
    c.set("full", "CBH", psn=0xFFFFFFFF)
    c.cut("full", c["full"].at + 10 * US)


def plain_numbers(c):
    for tag in ("gap", "eom"):
        c.plain(tag)
    c.cut("eom", c["eom"].at + 10 * US)
    c.satisfies = ["CONV-004", "REL-001", "REL-002", "REL-017", "REL-009"]


def sends_out_of_order():
    s = Scene("sends-out-of-order", "Three Sends over two paths, completed in order",
              "Path 0 is slow. The second and the third Send arrive on path 1 before the first piece of the first one. Each lands at once in the receive that "
              "its RQSN names and is acknowledged; the receives complete together, in order, when the first Send is whole.",
              paths=2, limits=(0, 4))
    s.delay = {0: 60 * US, 1: 20 * US}
    for n in range(4):
        s.receive("acceptor", 0, n, 512, 100 + n, VA + n * 512)
    lengths = (300, 100, 200)
    w = [s.send(k * 100, k + 1, lengths[k], tag=f"post{k}") for k in range(3)]
    slow = s.tx(1000, w[0], 0, 0, AR, tag="slow")
    fast = [s.tx(1400 + k * 400, w[k], k == 0, 1, tag=f"fast{k}") for k in range(3)]
    acks = [s.ack(f.arrives, "acceptor", 1, tag=f"ack{k}") for k, f in enumerate(fast)]
    whole = slow.arrives
    s.ack(whole, "acceptor", 0, tag="ack-slow")
    for k in range(3):
        s.look(whole, "acceptor", VA + k * 512, w[k].data)
    for k in range(3):
        s.done(whole, "acceptor", 100 + k, "recv", lengths[k], tag=f"recv{k}")
    back = s["ack-slow"].arrives
    for k in range(3):
        s.finished(back, w[k], tag=f"done{k}")
    s.end(back + 10 * US)
    assert acks[2].arrives < back
    s.keeps("STRM-006", "STRM-007", "STRM-010", "STRM-020", "STRM-023", "STRM-024", "STRM-025", "STRM-026", "STRM-027", "STRM-028",
            "REL-015")
    yield s
    yield s.wrong("completed-as-they-come", "The second receive completes before the first one.", {"STRM-024": "recv0"}, as_they_come)
    yield s.wrong("completed-too-early", "The first receive completes when its last piece has come, while the first one is missing.",
                  {"STRM-025": "recv0"}, too_early)
    yield s.wrong("held-back", "The receiver acknowledges the second Send only when the first one is whole.",
                  {"REL-015": "late", "REL-019": "late", "STRM-023": "late"}, held_back)
    yield s.wrong("receive-passed-over", "The second Send names RQSN 2 instead of 1, and the third one 3.", {"STRM-007": "fast1"}, passed_over)
    yield s.wrong("length-of-the-buffer", "A receive completes with the length of its buffer.", {"STRM-026": "recv1"},
                  lambda c: c["recv1"].what["completion"].update(byte_len=512))
    yield s.wrong("sender-out-of-order", "The sender reports the second Send before the first.", {"STRM-028": "done1"}, sender_order)
    yield s.wrong("sender-too-early", "The sender reports the first Send when its last piece is acknowledged.", {"STRM-027": "done0"},
                  lambda c: setattr(c["done0"], "at", c["ack0"].arrives))


def as_they_come(c):
    first, second = c["recv0"].what["completion"], c["recv1"].what["completion"]
    first["wr_id"], second["wr_id"] = second["wr_id"], first["wr_id"]
    first["byte_len"], second["byte_len"] = second["byte_len"], first["byte_len"]
    c.tags["recv0"] = c["recv1"]


def too_early(c):
    c["recv0"].at = c["fast0"].arrives


def held_back(c):
    c.drop("ack0", "ack1")
    c["ack2"].at, by = c["slow"].arrives, c["slow"].arrives - c["ack2"].at
    c["ack2"].fate = {"delivered": {"arrives_ns": c["ack2"].arrives + by}}
    c.tags["late"] = c.after(c["fast2"].arrives)


def passed_over(c):
    c.set("fast1", "MSGH", rqsn=2)
    c.set("fast2", "MSGH", rqsn=3)
    for n in (1, 2):
        c[f"recv{n}"].what["completion"]["wr_id"] += 1
    looks = [step for step in c.steps if "memory" in step.__dict__.get("what", {})]
    for n, look in enumerate(looks):
        if n:
            look.what["memory"]["va"] = f"{VA + (n + 1) * 512:#018x}"


def sender_order(c):
    first, second = c["done0"].what["completion"], c["done1"].what["completion"]
    first["wr_id"], second["wr_id"] = second["wr_id"], first["wr_id"]
    first["byte_len"], second["byte_len"] = second["byte_len"], first["byte_len"]
    c.tags["done1"] = c["done0"]


def late_duplicate():
    s = Scene("late-duplicate", "A late original after newer data",
              "The first Write is held up and repaired. A third Write puts newer data at the same address and completes. Then the held-up packet arrives: "
              "its PSN is not new, so nothing is placed, and the newer data stay.")
    s.region("acceptor")
    one = s.write(0, 1, 200)
    held = s.tx(1000, one, late=300 * US, tag="held")
    two = s.write(0, 2, 100, va=VA + 0x800)
    shows = s.tx(1400, two, tag="shows")
    gap = s.ack(shows.arrives, "acceptor", tag="gap")
    again = s.rtx(gap.arrives, held, tag="again")
    full = s.ack(again.arrives, "acceptor", tag="full")
    s.finished(full.arrives, one)
    s.finished(full.arrives, two)
    three = s.write(100 * US, 3, 200)
    newer = s.tx(100 * US, three, tag="newer")
    ack = s.ack(newer.arrives, "acceptor", tag="ack")
    s.finished(ack.arrives, three)
    s.ack(held.arrives, "acceptor", tag="duplicate", port=51009)
    s.look(held.arrives + US, "acceptor", VA, three.data, tag="look")
    s.end(held.arrives + 30 * US)
    s.keeps("REL-006", "REL-018", "REL-020", "REL-031", "REL-026", "STRM-019", "STRM-027", "PATH-017", "ECN-005")
    yield s
    yield s.wrong("placed-again", "The late packet is placed and overwrites the newer data.", {"REL-006": "look"},
                  lambda c: c["look"].what["memory"].update(hex=pattern(1, 200).hex()), drop=("STRM-019",))
    yield s.wrong("counted-again", "The late packet counts in ECT_Count.", {"ECN-005": "duplicate"},
                  lambda c: c.set("duplicate", "ACK", ect_count=4))
    yield s.wrong("answered-late", "The late packet is acknowledged after 5 us only.", {"REL-018": "look"},
                  lambda c: c.shift(5 * US, "duplicate"))


def lost_acknowledgments():
    s = Scene("lost-acknowledgments", "Two acknowledgments lost, nothing repeated",
              "Each Send is acknowledged at once; the first two acknowledgments are lost. The third one covers everything, so nothing is sent "
              "again and all three Sends complete.", limits=(0, 3))
    for n in range(3):
        s.receive("acceptor", 0, n, 256, 100 + n, VA + n * 256)
    w, sent, acks = [], [], []
    for k in range(3):
        at = 1000 + k * 30 * US
        w.append(s.send(at, k + 1, 64 + k))
        sent.append(s.tx(at, w[k], tag=f"k{k}"))
        acks.append(s.ack(sent[k].arrives, "acceptor", lost=k < 2, tag=f"ack{k}"))
        s.done(sent[k].arrives, "acceptor", 100 + k, "recv", 64 + k)
    for k in range(3):
        s.finished(acks[2].arrives, w[k], tag=f"done{k}")
    s.end(acks[2].arrives + 40 * US)
    s.keeps("REL-009", "REL-013", "REL-015", "STRM-025", "STRM-027", "STRM-028", "PKT-006", "REL-029", "ECN-008")
    yield s
    yield s.wrong("repeated-without-evidence", "The sender repeats the first Send because its acknowledgment has not come within two round trips.",
                  {"REL-032": "again"}, repeated)
    yield s.wrong("backwards", "The last acknowledgment repeats the CumPSN of the second, and then the one of the first follows.",
                  {"REL-009": "third", "REL-013": "third"}, backwards)
    yield s.wrong("completed-unacknowledged", "The sender reports the first Send although no acknowledgment has come.", {"STRM-027": "done0"},
                  lambda c: setattr(c["done0"], "at", c["ack0"].at + 20 * US))


def repeated(c):
    again = c.rtx(c["k0"].at + 80 * US + 500, c["k0"], tag="again")
    c.ack(again.arrives, "acceptor", port=51077)


def backwards(c):
    third = c.ack(c["ack2"].at + 5 * US, "acceptor", tag="third")
    c.set("third", "CBH", psn=c["k0"].cbh["psn"])
    c["end"].at = max(c["end"].at, third.arrives + US)


def odd_sizes():
    s = Scene("odd-sizes", "An empty Write, and a message that is no multiple of four",
              "A Write of length 0 is one packet with SOM and EOM and without payload; its address and key are not looked at. A Write of 259 bytes ends "
              "with a piece of 3 bytes and one byte of padding.")
    s.region("acceptor")
    empty = s.write(0, 1, 0, va=0, rkey=0)
    first = s.tx(1000, empty, tag="empty")
    a = s.ack(first.arrives, "acceptor", tag="ack-empty")
    odd = s.write(1000, 2, 259)
    s.tx(1400, odd, 0)
    k1 = s.tx(1800, odd, 1, tag="k1")
    b = s.ack(k1.arrives, "acceptor", tag="ack")
    s.finished(a.arrives, empty, tag="done-empty")
    s.look(k1.arrives, "acceptor", VA, odd.data + bytes(3), tag="look")
    s.finished(b.arrives, odd, tag="done")
    s.end(b.arrives + 10 * US)
    s.keeps("STRM-018", "STRM-014", "STRM-015", "STRM-016", "STRM-017", "STRM-019", "STRM-021", "PKT-006", "MEM-005", "STRM-013", "STRM-027")
    yield s
    yield s.wrong("empty-unanswered", "The receiver takes the empty Write but does not acknowledge it at once.", {"REL-015": "done"},
                  empty_unanswered)
    yield s.wrong("more-than-the-message", "The receiver writes a byte behind the end of the message.", {"STRM-021": "look"},
                  lambda c: c["look"].what["memory"].update(hex=(pattern(2, 259) + b"\xff\0\0").hex()), drop=("STRM-019",))
    yield s.wrong("half-sent", "The sender reports the second Write when its first piece is acknowledged, before it sends the other one.",
                  {"STRM-017": "done", "STRM-027": "done"}, half_sent)


def empty_unanswered(c):
    c.drop("ack-empty")
    c["done-empty"].at = c["ack"].arrives
    c.tags["done"] = c.after(c["empty"].arrives)


def half_sent(c):
    k0 = next(step for step in c.steps if step.at == 1400 and hasattr(step, "fields"))
    part = c.ack(k0.arrives, "acceptor")
    c["done"].at = part.arrives
    c.shift(60 * US, "k1", "ack")
    c["look"].at = c["k1"].arrives
    c["end"].at = c["ack"].arrives + US


SUBJECTS = {
    "odd-sizes": odd_sizes,
    "ecn-marks": ecn_marks,
    "marked-repair-and-duplicate": marked_repair,
    "psn-wrap-with-loss": psn_wrap,
    "sends-out-of-order": sends_out_of_order,
    "late-duplicate": late_duplicate,
    "lost-acknowledgments": lost_acknowledgments,
}
