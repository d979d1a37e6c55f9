"""Rate hints of 0, and data that come before the stream is known to be open."""

from ..build import MS, US, VA, Scene
from ..wire import AR

CAPACITY, SHARE = 220, 209
INTERVAL = 100 * US
PAUSE = 195 * US


def paused():
    s = Scene("paused-and-resumed", "A hint of 0, the resuming acknowledgment lost, and a probe that asks",
              "The receiver tells the sender to pause. The next acknowledgment, in a later hint interval, would let it go on, but is lost. Work is posted meanwhile and waits. One "
              "RTT after the hint of 0 the sender asks with PATH_PROBE; the answer carries the current hint, which ends the pause.",
              paths=2, hints=(0, 1), hint_interval=(0, 100))
    s.connections[0]["acceptor"]["capacity_mbps"] = CAPACITY
    s.hint = hint
    s.region("acceptor")
    w = s.write(0, 1, 2 * 256)
    first = [s.tx(1000 + k * 500, w, k, k, AR) for k in range(2)]
    acks = [s.ack(first[k].arrives, "acceptor", k) for k in range(2)]
    s.finished(acks[1].arrives, w)
    w2 = s.write(PAUSE - 20 * US, 2, 256, va=VA + 0x1000)
    p0 = s.tx(PAUSE - 20 * US, w2, 0, 0)
    w3 = s.write(PAUSE - 10 * US, 3, 200, va=VA + 0x1100)
    p1 = s.tx(PAUSE - 10 * US, w3, 0, 1)
    stop = s.ack(p0.arrives, "acceptor", 0, tag="stop")
    s.ack(p1.arrives, "acceptor", 1, lost=True, tag="go")
    s.finished(stop.arrives, w2)
    w4 = s.write(stop.arrives + 5 * US, 4, 3 * 256, va=VA + 0x2000)
    rtt = 40 * US
    probe = s.probe(stop.arrives + rtt, "initiator", 1, 1, p1.cbh["psn"], tag="probe")
    answer = s.probe_ack(probe.arrives, probe, tag="answer")
    s.finished(answer.arrives, w3, tag="done3")
    more = [s.tx(answer.arrives + k * 500, w4, k, k % 2, tag=f"more{k}") for k in range(3)]
    s.ack(more[2].arrives, "acceptor", 0, tag="all0")
    last = s.ack(more[1].arrives + 8 * US, "acceptor", 1, tag="all1")
    s.finished(last.arrives, w4, tag="done4")
    s.end(last.arrives + 10 * US)
    s.keeps("HINT-001", "HINT-002", "HINT-004", "HINT-007", "HINT-008", "HINT-011", "HINT-013", "REL-037", "REL-039", "STRM-027")
    gone = ("HINT-008", "HINT-011", "HINT-013", "REL-037", "REL-039", "STRM-027")
    yield s
    yield s.wrong("goes-on", "The sender takes no notice of the pause.", {"HINT-011": "more0"}, goes_on, drop=gone)
    yield s.wrong("never-asks", "The sender waits for the hint that was lost, and does not ask.", {"HINT-013": "end"}, never, drop=gone)
    yield s.wrong("asks-late", "The sender asks 30 us late.", {"HINT-013": "then"}, late)
    yield s.wrong("answer-without-hint", "The answer to the probe bears no hint.", {"HINT-001": "answer"}, without, drop=gone[:2] + gone[6:])
    yield s.wrong("back-to-the-old-number", "The answer bears the hint under the number of the pause.", {"HINT-002": "answer"}, old_number, drop=gone[:2] + gone[6:])


def hint(step):
    """The hint at the time of an acknowledgment or of the answer to a probe."""
    return (1, SHARE) if step.at < INTERVAL else (2, 0) if step.at < 2 * INTERVAL else (3, SHARE)


def goes_on(c):
    at = c["stop"].arrives + 5 * US
    c.drop("probe", "answer", "done3", "more1", "more2", "all0", "all1", "done4")
    c.move("more0", at)
    c.cut("more0", at + US)


def never(c):
    at = c["probe"].at
    c.drop("probe", "answer", "done3", "more0", "more1", "more2", "all0", "all1", "done4")
    c.end(at + 100 * US)


def late(c):
    at = c["probe"].at
    c.shift(30 * US, "probe", "answer", "more0", "more1", "more2", "all0", "all1")
    for tag in ("done3", "done4", "end"):
        c[tag].at += 30 * US
    c.tags["then"] = c.after(at)


def without(c):
    c.set("answer", "PATH_PROBE_ACK", hint_epoch=0, rate_hint=0xFFFFFF)
    c.cut("answer", c["answer"].at + 10 * US)


def old_number(c):
    c.set("answer", "PATH_PROBE_ACK", hint_epoch=2)
    c.cut("answer", c["answer"].at + 10 * US)


STREAM = dict(stream=2, first_msn=5, first_rqsn=9)


def before_the_answer():
    s = Scene("data-before-the-answer", "The answer to STREAM_OPEN lost, and data of the peer taken all the same",
              "The acceptor agrees to the stream and sends on it; its STREAM_OPEN_ACK is lost, the Send arrives. The initiator has asked for the stream, so it takes the Send as if "
              "the stream were open, but sends nothing itself. It repeats STREAM_OPEN after 50 ms, gets the same answer again, and then sends.")
    s.connections[0]["streams"] = 2
    s.opened = {2: {"initiator": 10, "acceptor": 10}}
    for n, side in enumerate(("initiator", "acceptor")):
        s._next[0, side, 2] = {"msn": 5, "rqsn": 9}
        s.receives.append(dict(side=side, stream=2, rqsn=9, length=512, wr_id=900 + n, va=f"{VA + n * 0x1000:#018x}"))
    ask = s.control(0, "initiator", "STREAM_OPEN", 1, {"STREAM_OPEN": STREAM | dict(rq_limit=10, src_qpn=0x11)}, tag="ask")
    body = {"STREAM_OPEN_ACK": STREAM | dict(rq_limit=10, src_qpn=0x22, dst_qpn=0x11)}
    s.control(ask.arrives, "acceptor", "STREAM_OPEN_ACK", 1, body, lost=True, tag="lost")
    w = s.send(30 * US, 1, 100, side="acceptor", stream=2)
    data = s.tx(30 * US, w, tag="data")
    ack = s.ack(data.arrives, "initiator", tag="ack")
    s.look(data.arrives, "initiator", VA, w.data, tag="look")
    s.done(data.arrives, "initiator", 900, "recv", 100, stream=2, tag="recv")
    s.finished(ack.arrives, w, tag="done")
    again = s.control(50 * MS, "initiator", "STREAM_OPEN", 1, {"STREAM_OPEN": STREAM | dict(rq_limit=10, src_qpn=0x11)}, port=50010, tag="again")
    answer = s.control(again.arrives, "acceptor", "STREAM_OPEN_ACK", 1, body, tag="answer")
    w2 = s.send(answer.arrives, 2, 60, stream=2, tag="post2")
    data2 = s.tx(answer.arrives, w2, tag="data2")
    ack2 = s.ack(data2.arrives, "acceptor", tag="ack2")
    s.look(data2.arrives, "acceptor", VA + 0x1000, w2.data)
    s.done(data2.arrives, "acceptor", 901, "recv", 60, stream=2)
    s.finished(ack2.arrives, w2, tag="done2")
    s.end(ack2.arrives + 10 * US)
    s.keeps("STRM-046", "STRM-001", "STRM-002", "STRM-003", "STRM-005", "STRM-007", "STRM-010", "STRM-020", "STRM-025", "STRM-026", "STRM-027", "STRM-042", "STRM-043",
            "CONN-014", "CONN-022", "CONN-023", "CONN-024", "CONN-025", "CONN-044", "REL-015", "REL-025")
    first = ("CONN-022", "CONN-023", "CONN-024", "CONN-025", "CONN-044")
    yield s
    yield s.wrong("dropped", "The initiator drops the Send, since its STREAM_OPEN has no answer.", {"STRM-046": "end", "REL-015": "end", "REL-019": "end"}, dropped,
                  drop=first + ("STRM-020", "STRM-025", "STRM-026", "STRM-027", "REL-025"))
    yield s.wrong("both-ways", "The initiator takes the Send for an answer, and sends on the stream itself.", {"STRM-003": "data2"}, both_ways, drop=first)
    yield s.wrong("another-answer", "The second answer names another queue pair than the first.", {"CONN-025": "answer"},
                  lambda c: c.set("answer", "STREAM_OPEN_ACK", src_qpn=0x23))
    yield s.wrong("numbers-of-its-own", "The acceptor numbers its first message 1 and not as was agreed.", {"STRM-005": "data"}, own_number,
                  drop=first + ("STRM-020", "STRM-025", "STRM-026", "STRM-027", "REL-015", "REL-025", "STRM-046"))


def dropped(c):
    c.drop("ack", "look", "recv", "done")
    c.cut("data", c["data"].arrives + 20 * US)


def both_ways(c):
    at = c["ack"].arrives + 10 * US
    c["post2"].at = at
    c.move("data2", at)
    c.drop("again", "answer")
    c.cut("data2", at + US)


def own_number(c):
    c.set("data", "MSGH", msn=1)
    c.cut("data", c["data"].at + US)


SUBJECTS = {"paused-and-resumed": paused, "data-before-the-answer": before_the_answer}
