"""Sends that close a key, and compare and swap."""

from ..build import RKEY, US, VA, Scene, pattern
from ..wire import wide

STREAM, REM_ACCESS = 1, 0x11
LOCAL = 0x0000_5500_0000_0000


def invalidation():
    s = Scene("send-with-invalidation", "A Send that closes a key, and a Write that comes too late",
              "Path 0 is slow, so the Send arrives as a whole before the Write in front of it, which still needs the key. The key is closed when the Write has come, and then the "
              "receive completes. A later Write with that key is refused, though its address is the same and has been written before: a NAK, and the stream is reset.",
              paths=2, features=("INV", "RESET"), limits=(0, 1))
    s.delay = {0: 60 * US, 1: 20 * US}
    s.region("acceptor", allow=("remote_write", "remote_invalidate"))
    s.receive("acceptor", 0, 0, 512, 100, VA + 0x8000)
    w = s.write(0, 1, 200)
    inv = s.post(0, "initiator", "SEND_INV", 2, pattern(2, 300), rkey=RKEY)
    slow = s.tx(1000, w, 0, 0, tag="slow")
    k0, k1 = (s.tx(1400 + k * 400, inv, k, 1, tag=f"k{k}") for k in range(2))
    s.ack(k1.arrives, "acceptor", 1, tag="ack1")
    ack0 = s.ack(slow.arrives, "acceptor", 0, tag="ack0")
    s.look(slow.arrives, "acceptor", VA, w.data)
    s.look(slow.arrives, "acceptor", VA + 0x8000, inv.data)
    s.event(slow.arrives, "acceptor", "invalidated", "closed", rkey=RKEY)
    s.done(slow.arrives, "acceptor", 100, "recv", 300, tag="recv")
    s.finished(ack0.arrives, w)
    s.finished(ack0.arrives, inv, tag="done2")
    late = s.write(200 * US, 3, 100)
    try_ = s.tx(200 * US, late, 0, 1, tag="late")
    try_.refused = True
    nak = s.nak(try_.arrives, try_, REM_ACCESS, STREAM, tag="nak")
    s.finished(nak.arrives, late, "IBV_WC_REM_ACCESS_ERR", tag="failed")
    reset = s.control(nak.arrives, "initiator", "STREAM_RESET", 1, {"STREAM_RESET": dict(stream=0, code=REM_ACCESS, msn=late.msn)}, port_path=1, tag="reset")
    answer = s.control(reset.arrives, "acceptor", "STREAM_RESET_ACK", 1, {"STREAM_RESET_ACK": dict(stream=0)}, port_path=1, tag="reset-ack")
    s.look(answer.at, "acceptor", VA, w.data, tag="look")
    s.end(answer.at + 10 * US)
    assert k0.arrives < slow.arrives
    s.keeps("OPS-001", "OPS-008", "OPS-009", "OPS-010", "OPS-011", "STRM-010", "STRM-020", "STRM-023", "STRM-025", "STRM-027", "STRM-032", "STRM-034",
            "STRM-036", "ERR-001", "ERR-002", "ERR-006", "ERR-010", "PKT-018")
    later = ("STRM-032", "STRM-034", "STRM-036", "OPS-011", "ERR-001", "ERR-002", "ERR-006", "ERR-010")
    yield s
    yield s.wrong("key-still-open", "The receiver takes the later Write, and acknowledges it.",
                  {"OPS-011": "after", "STRM-034": "after", "STRM-033": "taken", "REL-007": "taken"}, still_open, drop=later)
    yield s.wrong("completed-first", "The receive completes before the key is closed.", {"OPS-009": "recv"}, completed_first)
    yield s.wrong("closed-too-soon", "The key is closed when the Send has arrived, while the Write in front of it is missing.", {"OPS-010": "closed"}, too_soon,
                  drop=("OPS-009", "STRM-020", "STRM-025", "STRM-027", *later))
    yield s.wrong("two-keys", "The second packet of the Send names another key.", {"OPS-008": "k1"}, lambda c: c.set("k1", "SEND_INV", rkey=RKEY + 1),
                  drop=("OPS-009", "OPS-010", "STRM-020", "STRM-025", "STRM-027", "STRM-023", *later)).then(lambda c: c.cut("k1", c["k1"].at + 100))
    yield s.wrong("not-for-the-peer", "The key may not be closed by a peer, and no NAK says so.", {"OPS-012": "end"}, not_given,
                  drop=("OPS-009", "OPS-010", "STRM-020", "STRM-025", "STRM-027", "STRM-023", *later))


def still_open(c):
    c.drop("nak", "failed", "reset", "reset-ack", "look")
    ack = c.ack(c["late"].arrives, "acceptor", 1, tag="taken")
    c["late"].refused = False
    c.tags["after"] = c.end(ack.arrives + 10 * US)


def completed_first(c):
    closed = c.steps.pop(c.steps.index(c["closed"]))
    c.steps.insert(c.steps.index(c["recv"]) + 1, closed)


def too_soon(c):
    c["closed"].at = c["k1"].arrives
    c.cut("closed", c["closed"].at + US)


def not_given(c):
    c.regions[0]["allow"].remove("remote_invalidate")
    c.cut("k1", c["k1"].arrives + 5 * US)


HELD, FITS, OTHER = 41, 42, 43


def swap():
    s = Scene("compare-and-swap", "Two compare-and-swaps for one word: one fits, one does not",
              "Two streams ask at nearly the same time for the same 8 bytes, which hold 41, and both expect 41. The first one puts 42. The second one then finds 42, which is not "
              "what it expects, and leaves it. Each response carries the value from before its own operation, so each requester knows how it went.",
              streams=(0, 2), atomics=(0, 2))
    s.region("acceptor", allow=("remote_atomic",), data=number(HELD))
    asks = [s.post(0, "initiator", "CMP_SWAP", n + 1, bytes(8), stream=2 * n, va=wide(VA), rkey=RKEY, compare=wide(HELD), swap_or_add=wide(new),
                   local=wide(LOCAL + 8 * n)) for n, new in enumerate((FITS, OTHER))]
    sent = [s.tx(1000 + n * 400, ask, tag=f"ask{n}") for n, ask in enumerate(asks)]
    for n, before in enumerate((HELD, FITS)):
        s.ack(sent[n].arrives, "acceptor", tag=f"queued{n}")
        answer = s.reply(asks[n], "ATOMIC_RESP", bytes(8), original=wide(before))
        response = s.tx(sent[n].arrives, answer, delay=20 * US + 200, tag=f"answer{n}")
        ack = s.ack(response.arrives, "initiator", tag=f"ack{n}")
        s.look(response.arrives, "initiator", LOCAL + 8 * n, number(before))
        s.finished(response.arrives, asks[n], tag=f"done{n}")
    s.look(s["answer1"].at + US, "acceptor", VA, number(FITS), tag="look")
    s.end(ack.arrives + 10 * US)
    s.keeps("OPS-001", "OPS-024", "OPS-026", "OPS-028", "OPS-030", "OPS-031", "OPS-032", "OPS-047", "OPS-049", "PKT-018", "PKT-020", "PKT-021", "PKT-029",
            "REL-015", "STRM-005", "REL-001")
    ends = ("OPS-026", "OPS-047")
    yield s
    yield s.wrong("swapped-all-the-same", "The second one puts its value although it does not fit.", {"OPS-026": "look"},
                  lambda c: c["look"].what["memory"].update(hex=number(OTHER).hex()))
    yield s.wrong("not-swapped", "The first one is answered, but the word keeps its value.", {"OPS-026": "look"},
                  lambda c: c["look"].what["memory"].update(hex=number(HELD).hex()))
    yield s.wrong("value-after", "The first response carries the new value.", {"OPS-028": "answer0"}, lambda c: c.set("answer0", "ATOMIC_RESP", original=wide(FITS)),
                  drop=ends + ("OPS-030",)).then(lambda c: c.cut("answer0", c["answer0"].at + 100))
    yield s.wrong("both-fit", "The second one reads before the first one has written, so that both find 41.", {"OPS-030": "answer1"},
                  lambda c: c.set("answer1", "ATOMIC_RESP", original=wide(HELD)), drop=ends).then(lambda c: c.cut("answer1", c["answer1"].at + 100))
    yield s.wrong("answered-late", "The first response waits for 3 us, although nothing holds it.", {"OPS-049": "ask1-late"}, answered_late, drop=ends + ("OPS-028", "OPS-030", "OPS-031"))
    yield s.wrong("done-when-acknowledged", "The first requester reports its work when the request is acknowledged, before there is a response.",
                  {"OPS-047": "done0"}, done_early)


def answered_late(c):
    at = c["ask0"].arrives
    c.drop("answer1", "ack1", "done1")
    c.shift(3 * US, "answer0")
    c.cut("queued1", c["queued1"].at + US)
    c.tags["ask1-late"] = c.after(at)


def done_early(c):
    c["done0"].at = c["queued0"].arrives


def number(value):
    """A number of 8 bytes in the memory of the responder, least significant byte first."""
    return value.to_bytes(8, "little")


SUBJECTS = {"send-with-invalidation": invalidation, "compare-and-swap": swap}
