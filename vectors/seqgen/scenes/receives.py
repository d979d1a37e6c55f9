"""Credit, receivers that are not ready, and a stream that fails."""

from ..build import MS, RKEY, US, VA, Scene
from ..wire import AR

CONNECTION, PACKET, STREAM = 3, 0, 1
RNR, REM_ACCESS = 0x02, 0x11


def credit():
    s = Scene("no-credit", "No credit: ask, wait, be told",
              "The stream has no receive, so the Send stays where it is and the sender asks. The answer brings no credit. When the program posts a receive, the "
              "receiver tells of it unasked, under a transaction id of its own, and the Send goes.")
    w = s.send(0, 1, 200)
    ask = s.control(0, "initiator", "RQ_CREDIT", 1, {"RQ_CREDIT": dict(stream=0, kind=0)}, tag="ask")
    s.control(ask.arrives, "acceptor", "RQ_CREDIT", 1, {"RQ_CREDIT": dict(stream=0, kind=1, rq_limit=0)}, tag="none")
    s.event(5 * MS, "acceptor", "post_recv", stream=0, wr_id=100, rqsn=0, length=512, va=f"{VA:#018x}")
    tell = s.control(5 * MS, "acceptor", "RQ_CREDIT", 7, {"RQ_CREDIT": dict(stream=0, kind=1, rq_limit=1)}, tag="tell")
    data = s.tx(tell.arrives, w, tag="data")
    ack = s.ack(data.arrives, "acceptor", tag="ack")
    s.look(data.arrives, "acceptor", VA, w.data)
    s.done(data.arrives, "acceptor", 100, "recv", 200)
    s.finished(ack.arrives, w, tag="done")
    s.end(ack.arrives + 10 * US)
    s.keeps("STRM-010", "STRM-029", "STRM-030", "STRM-031", "STRM-020", "STRM-026", "RCV-003", "RCV-004", "RCV-005", "RCV-017", "STRM-025",
            "CONN-014")
    yield s
    yield s.wrong("sent-all-the-same", "The sender sends without credit as soon as the answer has brought none.", {"STRM-010": "data"}, sent_anyway,
                  drop=("RCV-003", "RCV-005", "RCV-017", "STRM-020", "STRM-025", "STRM-026"))
    yield s.wrong("never-asked", "The sender does not ask.", {"STRM-030": "then"}, never_asked, drop=("STRM-029", "CONN-014"))
    yield s.wrong("asked-too-often", "The sender asks again 2 ms after an answer that has brought nothing.", {"RCV-006": "ask2"}, too_often)
    yield s.wrong("other-answer", "The answer bears another transaction id.", {"STRM-029": "then"}, other_answer, drop=("RCV-006",))
    yield s.wrong("promised-what-is-not-there", "The receiver tells a limit three receives too high.", {"RCV-004": "tell"}, promised,
                  drop=("STRM-031",))
    yield s.wrong("taken-back", "The acknowledgment reports a lower limit than RQ_CREDIT has.", {"STRM-031": "ack"},
                  lambda c: c.set("ack", "ACK", rq_limit=0))


def sent_anyway(c):
    c.move("data", c["none"].arrives)
    c.cut("data", c["data"].at + 10 * US)


def never_asked(c):
    c.drop("ask", "none")
    c.tags["then"] = c.after(0)


def too_often(c):
    at = c["none"].arrives + 2 * MS
    ask = c.control(at, "initiator", "RQ_CREDIT", 2, {"RQ_CREDIT": dict(stream=0, kind=0)}, tag="ask2")
    c.control(ask.arrives, "acceptor", "RQ_CREDIT", 2, {"RQ_CREDIT": dict(stream=0, kind=1, rq_limit=0)})


def other_answer(c):
    c.set("none", "CBH", psn=99)
    c.tags["then"] = c.after(c["none"].at)


def promised(c):
    c.set("tell", "RQ_CREDIT", rq_limit=4)
    c.cut("tell", c["tell"].at + 10 * US)
    c.satisfies = [x for x in c.satisfies if x not in ("STRM-010", "STRM-020", "STRM-025", "STRM-026", "RCV-003")]


def not_ready():
    s = Scene("receiver-not-ready", "A promise that is not kept: RNR",
              "The program has taken back the receive that was promised. The Send is refused with NAK RNR, which names 100 us, and is not acknowledged; the Write "
              "behind it opens a gap. Until the 100 us are over the Send is held, whatever the gap shows; then it goes again, meets its receive, and completes.", limits=(0, 1))
    s.receive("acceptor", 0, 0, 512, 100, VA + 0x8000)
    s.region("acceptor")
    s.event(0, "acceptor", "take_recv", stream=0, wr_id=100, rqsn=0)
    w = s.send(0, 1, 200)
    first = s.tx(1000, w, tag="first")
    first.refused = True
    w2 = s.write(1000, 2, 100)
    behind = s.tx(1400, w2, tag="behind")
    nak = s.nak(first.arrives, first, RNR, PACKET, 100, tag="nak")
    gap = s.ack(behind.arrives, "acceptor", tag="gap")
    s.event(80 * US, "acceptor", "post_recv", stream=0, wr_id=101, rqsn=0, length=512, va=f"{VA + 0x8000:#018x}")
    at = nak.arrives + 100 * US
    s.event(at, "initiator", "timer", name="rnr", tag="timer")
    again = s.rtx(at, first, tag="again")
    full = s.ack(again.arrives, "acceptor", tag="full")
    s.look(again.arrives, "acceptor", VA + 0x8000, w.data)
    s.done(again.arrives, "acceptor", 101, "recv", 200)
    s.finished(full.arrives, w, tag="done1")
    s.finished(full.arrives, w2, tag="done2")
    s.end(full.arrives + 10 * US)
    assert gap.arrives < at
    s.keeps("RCV-009", "RCV-010", "RCV-011", "RCV-012", "RCV-013", "REL-028", "REL-027", "STRM-020", "STRM-023", "STRM-028", "PKT-016",
            "ERR-001", "PKT-022", "STRM-031")
    yield s
    yield s.wrong("without-waiting", "The sender repairs when the gap is reported, long before the time that the NAK has named.",
                  {"RCV-012": "again"}, without_waiting,
                  drop=("RCV-011", "STRM-020", "STRM-028", "RCV-013"))
    yield s.wrong("acknowledged-all-the-same", "The receiver reports the refused packet as arrived.", {"RCV-011": "gap", "REL-007": "gap", "REL-012": "gap"}, acknowledged,
                  drop=("RCV-012", "RCV-013", "REL-028", "REL-027", "STRM-020", "STRM-028", "STRM-031"))
    yield s.wrong("no-time-named", "The NAK names no time.", {"RCV-010": "nak"}, no_time,
                  drop=("RCV-012", "RCV-013", "REL-028", "REL-027", "STRM-020", "STRM-028", "RCV-011", "STRM-023", "STRM-031"))
    yield s.wrong("refused-in-silence", "The receiver drops the packet without a NAK, so that the sender repairs the gap at once.", {"RCV-009": "behind-time"},
                  in_silence, drop=("RCV-010", "RCV-011", "RCV-012", "RCV-013", "REL-028", "REL-027", "STRM-020", "STRM-028", "PKT-016", "ERR-001",
                                    "PKT-022"))
    yield s.wrong("other-psn", "The NAK names the PSN of the packet behind.", {"ERR-001": "nak", "RCV-009": "then"}, other_psn,
                  drop=("RCV-012", "RCV-013", "REL-028", "REL-027", "STRM-020", "STRM-028", "RCV-011", "STRM-023", "STRM-031"))


def without_waiting(c):
    c.steps.remove(c["timer"])
    c.move("again", c["gap"].arrives)
    c["again"].refused = True
    c.cut("again", c["again"].at + 10 * US)


def acknowledged(c):
    c.plain("gap")
    c.set("gap", "CBH", psn=c["behind"].cbh["psn"])
    c.cut("gap", c["gap"].at + 10 * US)


def no_time(c):
    c.set("nak", "NAK", detail=0)
    c.cut("nak", c["nak"].at + 200)


def in_silence(c):
    c.drop("nak")
    c.tags["behind-time"] = c.after(c["first"].arrives)
    c.cut("gap", c["gap"].at + 10 * US)


def other_psn(c):
    c.set("nak", "NAK", offending_psn=c["behind"].cbh["psn"])
    c.cut("nak", c["nak"].at + 200)
    c.tags["then"] = c["end"]


BAD = 0x0BADBAD0


def bad_key():
    s = Scene("bad-key", "A bad key: one stream fails, the other goes on",
              "A Write of stream 0 names a key that opens nothing. Neither of its packets is acknowledged, one NAK answers both. The sender fails the Write, "
              "flushes the stream and resets it. The second PSN, which no NAK has named, is taken with FILL as soon as the gap is reported, the refused one when the "
              "reset is answered, so that the path moves on. Stream 2 completes and goes on.",
              streams=(0, 2), features=("RESET",))
    s.region("acceptor")
    w = s.write(0, 1, 300, rkey=BAD)
    two = s.write(0, 2, 100, va=VA + 0x1000)
    other = s.write(0, 3, 100, va=VA + 0x2000, stream=2)
    k0, k1 = (s.tx(1000 + k * 400, w, k, tag=f"k{k}") for k in range(2))
    k0.refused = k1.refused = True
    good = s.tx(1800, other, tag="good")
    nak = s.nak(k0.arrives, k0, REM_ACCESS, STREAM, tag="nak")
    gap = s.ack(good.arrives, "acceptor", tag="gap")
    s.finished(nak.arrives, w, "IBV_WC_REM_ACCESS_ERR", tag="failed")
    s.finished(nak.arrives, two, "IBV_WC_WR_FLUSH_ERR", tag="flushed")
    reset = s.control(nak.arrives, "initiator", "STREAM_RESET", 1, {"STREAM_RESET": dict(stream=0, code=REM_ACCESS, msn=w.msn)}, tag="reset")
    s.finished(gap.arrives, other, tag="fine")
    f1 = s.fill(gap.arrives, "initiator", 0, k1.cbh["psn"], 0, 0x40 | AR, tag="fill1")
    answer = s.control(reset.arrives, "acceptor", "STREAM_RESET_ACK", 1, {"STREAM_RESET_ACK": dict(stream=0)}, tag="reset-ack")
    part = s.ack(f1.arrives, "acceptor", tag="part")
    f0 = s.fill(answer.arrives, "initiator", 0, k0.cbh["psn"], 0, 0x40 | AR, tag="fill0")
    filled = s.ack(f0.arrives, "acceptor", tag="filled")
    s.look(f0.arrives, "acceptor", VA, bytes(300), tag="look")
    more = s.write(125 * US, 4, 50, va=VA + 0x2100, stream=2)
    on = s.tx(125 * US, more, tag="on")
    last = s.ack(on.arrives, "acceptor", tag="last")
    s.finished(last.arrives, more, tag="fine2")
    s.end(last.arrives + 10 * US)
    assert f1.arrives > reset.arrives and part.arrives < f0.arrives and filled.at < on.at
    s.keeps("STRM-033", "STRM-034", "STRM-036", "STRM-037", "STRM-032", "ERR-001", "ERR-002", "ERR-006", "ERR-010", "ERR-013", "ERR-014",
            "ERR-015", "ERR-017", "ERR-005", "REL-026", "REL-028", "REL-031", "PKT-016", "PKT-020", "PKT-022", "PKT-023", "STRM-044", "VERB-008")
    later = ("ERR-010", "ERR-013", "ERR-014", "ERR-015", "REL-026", "REL-028", "REL-031", "PKT-023", "STRM-032", "ERR-005")
    early = ("STRM-036", "STRM-037", "ERR-006", "ERR-017", "VERB-008", *later)
    yield s
    yield s.wrong("acknowledged-all-the-same", "The receiver reports the refused packets as arrived.", {"STRM-033": "gap", "REL-007": "gap", "REL-012": "gap"}, bad_acknowledged,
                  drop=("PKT-020", *early))
    yield s.wrong("whole-connection", "The NAK has the scope connection although RESET has been agreed.", {"STRM-034": "nak", "ERR-002": "nak"},
                  whole_connection, drop=("STRM-033", "STRM-044", "PKT-020", *early))
    yield s.wrong("sent-again", "After its reset the sender repeats the second packet itself instead of a FILL.", {"ERR-013": "fill1"}, sent_again,
                  drop=("ERR-015", "STRM-032", "ERR-005", "ERR-014", "ERR-010", "PKT-020", "PKT-023"))
    yield s.wrong("fill-without-reset", "The sender fills the PSNs and does not reset the stream.", {"ERR-006": "without", "ERR-014": "fill1"},
                  without_reset, drop=("ERR-010", "STRM-032", "ERR-005"))
    yield s.wrong("wrong-status", "The Write that was refused is flushed like the one behind it.", {"STRM-036": "failed"},
                  lambda c: c["failed"].what["completion"].update(status="IBV_WC_WR_FLUSH_ERR"))
    yield s.wrong("other-stream-flushed", "The sender flushes the work of stream 2 too.", {"ERR-017": "fine"}, other_flushed, drop=("STRM-027",))
    yield s.wrong("placed-all-the-same", "The receiver places the bytes that it refuses.", {"STRM-032": "look"},
                  lambda c: c["look"].what["memory"].update(hex=w.data.hex()), drop=("ERR-005",))
    yield s.wrong("another-message-named", "STREAM_RESET names the message behind the one that was refused.", {"ERR-006": "reset"},
                  lambda c: c.set("reset", "STREAM_RESET", msn=2))
    yield s.wrong("reset-unanswered", "The receiver does not answer STREAM_RESET.", {"ERR-010": "after-reset"}, unanswered)


def bad_acknowledged(c):
    c.plain("gap")
    c.set("gap", "CBH", psn=c["good"].cbh["psn"])
    c.cut("gap", c["gap"].at + 10 * US)


def whole_connection(c):
    c.set("nak", "NAK", scope=CONNECTION)
    c.cut("nak", c["nak"].at + 100)


def sent_again(c):
    at = c["fill1"].at
    c.drop("fill1")
    again = c.rtx(at, c["k1"], tag="fill1")
    again.refused = False
    c.cut("fill1", at + 1000)


def without_reset(c):
    c.drop("reset", "reset-ack")
    c.cut("part", c["part"].at + 10 * US)
    c.tags["without"] = c.after(c["nak"].arrives)


def other_flushed(c):
    c["fine"].what["completion"].update(status="IBV_WC_WR_FLUSH_ERR", byte_len=0)
    c.cut("filled", c["filled"].at + 10 * US)
    c.satisfies = [x for x in c.satisfies if x not in ("VERB-008",)]


def unanswered(c):
    c.drop("reset-ack", "fill0", "filled")
    c.tags["after-reset"] = c.after(c["reset"].arrives)


SUBJECTS = {"credit": credit, "receiver-not-ready": not_ready, "bad-key": bad_key}
