"""Set-up, refusal and close."""

from ..build import MS, US, VA, Scene
from ..wire import blank, wide

NONCES = (0x1122334455667788, 0x99AABBCCDDEEFF00)
COOKIE = "c0" * 31 + "01"
STREAM = dict(stream=0, first_msn=5, first_rqsn=9)


def params(s, side, **change):
    """The parameters of one side, as it offers or agrees to them."""
    c = s.connections[0]
    own = c[side]
    values = dict(
        ver_min=1, ver_max=1, paths=c["paths"], scid=own["cid"], nonce=wide(NONCES[side == "acceptor"]), isn=own["isn"],
        service_id=c["service_id"], streams=c["streams"], msg_window=c["msg_window"], payload_size=c["payload_size"],
        vector_width=256, ts_unit=1, ack_delay=own["ack_delay_us"], hint_interval=own["hint_interval_us"],
        hint_support=own["hint_support"], extra_planes=0, read_depth=own["read_depth"], atomic_depth=own["atomic_depth"])
    return blank("OPEN")["params"] | values | change


def opening(id, title, shows, **more):
    s = Scene(id, title, shows, established=False, paths=2, **more)
    s.nonces, s.opened = NONCES, {0: {"initiator": 9, "acceptor": 11}}
    return s


def open_(s, at, transaction=0x51, tag="open", offer=None, **rest):
    step = s.control(at, "initiator", "OPEN", transaction, {"params": params(s, "initiator", **(offer or {}))}, tag=tag, **rest)
    step.cbh["dcid"] = 0
    return step


def accept(s, asked, tag="accept", agree=None, **rest):
    return s.control(asked.arrives, "acceptor", "ACCEPT", asked.cbh["psn"], {
        "params": params(s, "acceptor", **(agree or {})), "ACCEPT": {"cookie": COOKIE}}, tag=tag, **rest)


def confirm(s, at, transaction=0x52, tag="confirm", offer=None, **rest):
    return s.control(at, "initiator", "CONFIRM", transaction, {
        "params": params(s, "initiator", **(offer or {})), "accepted": params(s, "acceptor"), "CONFIRM": {"cookie": COOKIE}}, tag=tag, **rest)


def confirm_ack(s, asked, tag="confirmed", **rest):
    return s.control(asked.arrives, "acceptor", "CONFIRM_ACK", asked.cbh["psn"], {"CONFIRM_ACK": {"nonce": wide(NONCES[0])}}, tag=tag, **rest)


def reject(s, asked, reason, tag="reject"):
    return s.control(asked.arrives, "acceptor", "REJECT", asked.cbh["psn"], {
        "REJECT": dict(reason=reason, ver_min=1, ver_max=1, nonce=wide(NONCES[0]))}, tag=tag)


def stream(s, at, transaction=0x53):
    asked = s.control(at, "initiator", "STREAM_OPEN", transaction, {"STREAM_OPEN": STREAM | dict(rq_limit=9, src_qpn=0x11)}, tag="stream")
    answer = s.control(asked.arrives, "acceptor", "STREAM_OPEN_ACK", transaction, {
        "STREAM_OPEN_ACK": STREAM | dict(rq_limit=11, src_qpn=0x22, dst_qpn=0x11)}, tag="stream-open")
    return asked, answer


def set_up_and_close():
    s = opening("set-up-and-close", "Set-up, one Send, close",
                "OPEN, ACCEPT, CONFIRM and CONFIRM_ACK set the connection up. STREAM_OPEN names the first MSN and RQSN, and its answer the first "
                "RqLimit of the acceptor. One Send follows, and CLOSE ends it all.", first_msn=5, first_rqsn=9)
    s.receive("acceptor", 0, 9, 512, 901, VA)
    s.receive("acceptor", 0, 10, 512, 902, VA + 512)
    confirmed = confirm_ack(s, confirm(s, accept(s, open_(s, 0)).arrives))
    asked, answer = stream(s, confirmed.arrives)
    s.event(answer.arrives, "initiator", "established", paths=2, streams=1)
    s.event(asked.arrives, "acceptor", "established", paths=2, streams=1)
    w = s.send(answer.arrives + 10 * US, 1, 100)
    data = s.tx(answer.arrives + 10 * US, w, tag="data")
    ack = s.ack(data.arrives, "acceptor", tag="ack")
    s.look(data.arrives, "acceptor", VA, w.data)
    s.done(data.arrives, "acceptor", 901, "recv", 100)
    s.finished(ack.arrives, w)
    close = s.control(ack.arrives + 20 * US, "initiator", "CLOSE", 0x54, tag="close")
    closed = s.control(close.arrives, "acceptor", "CLOSE_ACK", 0x54, tag="closed")
    s.done(close.arrives, "acceptor", 902, "recv", 0, status="IBV_WC_WR_FLUSH_ERR")
    s.event(close.arrives, "acceptor", "closed", reason=0)
    s.event(closed.arrives, "initiator", "closed", reason=0)
    s.end(closed.arrives + 10 * US)
    s.keeps("CONN-001", "CONN-002", "CONN-004", "CONN-005", "CONN-006", "CONN-007", "CONN-008", "CONN-012", "CONN-013", "CONN-014",
            "CONN-015", "CONN-016", "CONN-019", "CONN-026", "CONN-027", "CONN-033", "CONN-039", "STRM-001", "STRM-002", "STRM-003",
            "STRM-005", "STRM-007", "STRM-010", "STRM-020", "STRM-025", "STRM-026", "STRM-027", "STRM-042", "STRM-043", "PKT-010", "PKT-011",
            "VERB-004")
    yield s
    yield s.wrong("other-cookie", "CONFIRM hands back a cookie that differs in one byte, and the acceptor takes it.",
                  {"CONN-013": "confirm", "CONN-016": "confirmed", "CONN-017": "stream"},
                  lambda c: c.set("confirm", "CONFIRM", cookie="c0" * 32))
    yield s.wrong("fewer-paths-confirmed", "CONFIRM repeats the offer with another number of paths.", {"CONN-012": "confirm"},
                  lambda c: c.set("confirm", "params", paths=1))
    yield s.wrong("stale-confirm-ack", "CONFIRM_ACK bears the transaction id of the OPEN.", {"CONN-015": "confirmed"}, stale)
    yield s.wrong("data-too-soon", "The initiator sends STREAM_OPEN before CONFIRM_ACK has come.", {"CONN-019": "stream"},
                  lambda c: c.shift(-30 * US, "stream", "stream-open"), drop=("STRM-003", "STRM-010"))
    yield s.wrong("odd-stream", "The initiator opens stream 1.", {"STRM-001": "stream"}, odd_stream)
    yield s.wrong("first-message-one", "The first message of the stream is numbered 6 instead of the 5 that was agreed.", {"STRM-005": "data"},
                  first_message, drop=("STRM-025", "STRM-026"))
    yield s.wrong("more-streams", "The acceptor agrees to more streams than were offered.", {"CONN-007": "accept"}, more_streams,
                  drop=("CONN-039",))
    yield s.wrong("close-for-another-reason", "CLOSE_ACK names another reason than the CLOSE.", {"CONN-026": "closed"},
                  lambda c: c.set("closed", "CLOSE_ACK", reason=2))
    yield s.wrong("one-more-message", "The initiator begins a message after its CLOSE.", {"CONN-027": "more"}, one_more)


def stale(c):
    c.set("confirmed", "CBH", psn=0x51)
    c.cut("confirmed", c["confirmed"].at + 10 * US)
    c.satisfies = ["CONN-001", "CONN-002", "CONN-005", "CONN-012", "CONN-013", "CONN-016"]


def odd_stream(c):
    for tag, layer in (("stream", "STREAM_OPEN"), ("stream-open", "STREAM_OPEN_ACK")):
        c.set(tag, layer, stream=1)
    c.cut("stream-open", c["stream-open"].at + 30 * US)
    c.satisfies = ["CONN-005", "CONN-012", "CONN-013", "CONN-015", "STRM-002"]


def first_message(c):
    c.set("data", "MSGH", msn=6)
    c.steps = [step for step in c.steps if step.__dict__.get("what", {}).get("completion", {}).get("wr_id") != 901]
    c.cut("ack", c["ack"].arrives - 1)
    c.satisfies = ["CONN-005", "CONN-013", "CONN-015", "STRM-001", "STRM-007", "STRM-010", "STRM-020"]


def more_streams(c):
    c.set("accept", "params", streams=4)
    c.cut("accept", c["accept"].at + 10 * US)
    c.satisfies = ["CONN-001", "CONN-005", "CONN-008"]


def one_more(c):
    at = c["close"].at + 5 * US
    c.set("close", "CLOSE", reason=0)
    w = c.send(at, 2, 50)
    c.tx(at, w, tag="more")
    c.cut("more", at + 5 * US)
    c.satisfies = [x for x in c.satisfies if x not in ("CONN-026", "VERB-004")]


def set_up_refused():
    s = opening("set-up-refused-by-version", "Set-up refused: no common version",
                "The initiator offers versions 2 and 3. The acceptor speaks version 1, says so in REJECT, echoes transaction id and nonce, and keeps nothing.")
    asked = open_(s, 0, offer=dict(ver_min=2, ver_max=3))
    answer = reject(s, asked, 1)
    s.event(answer.arrives, "initiator", "failed", status="IBV_WC_FATAL_ERR")
    s.end(answer.arrives + 10 * US)
    s.keeps("CONN-009", "CONN-011", "CONN-006", "CONN-001", "CONN-002")
    yield s
    yield s.wrong("other-reason", "REJECT gives as reason that there is no such service.", {"CONN-009": "reject"},
                  lambda c: c.set("reject", "REJECT", reason=2))
    yield s.wrong("no-nonce", "REJECT does not echo the nonce.", {"CONN-011": "reject"},
                  lambda c: c.set("reject", "REJECT", nonce=wide(0)))
    yield s.wrong("accepted-all-the-same", "The acceptor answers with ACCEPT for version 1, which was not offered.",
                  {"CONN-008": "reject", "CONN-009": "end"}, accepted, drop=("CONN-011",))
    yield s.wrong("no-answer", "The acceptor says nothing.", {"CONN-009": "end"}, silent, drop=("CONN-011", "CONN-006"))


def accepted(c):
    asked = c["open"]
    c.drop("reject")
    accept(c, asked, tag="reject")
    c.cut("reject", c["reject"].at + 10 * US)


def silent(c):
    c.drop("reject")
    c.cut("open", 50 * US)


def service_refused():
    s = opening("set-up-refused-by-service", "Set-up refused: no such service",
                "The initiator asks for service 8, the acceptor offers service 7 only.")
    answer = reject(s, open_(s, 0, offer=dict(service_id=8)), 2)
    s.event(answer.arrives, "initiator", "failed", status="IBV_WC_FATAL_ERR")
    s.end(answer.arrives + 10 * US)
    s.keeps("CONN-010", "CONN-011", "CONN-006")
    yield s
    yield s.wrong("bad-parameters", "REJECT gives bad parameters as its reason.", {"CONN-010": "reject"},
                  lambda c: c.set("reject", "REJECT", reason=4))
    yield s.wrong("other-transaction", "REJECT bears a transaction id of its own, which the initiator cannot match.",
                  {"CONN-011": "reject", "CONN-010": "failed"}, other_transaction)


def other_transaction(c):
    c.set("reject", "CBH", psn=0x99)
    c.tags["failed"] = c.after(c["reject"].at)


def rough_set_up():
    s = opening("rough-set-up", "Set-up with two packets lost",
                "OPEN is lost and repeated after 50 ms under the same transaction id. Later CONFIRM_ACK is lost: the CONFIRM is repeated and answered "
                "again with the same body. Each repetition leaves from another source port.", first_msn=5, first_rqsn=9)
    open_(s, 0, lost=True)
    asked = open_(s, 50 * MS, tag="open-again", port=50010)
    first = confirm(s, accept(s, asked).arrives)
    confirm_ack(s, first, lost=True, tag="lost")
    again = confirm(s, first.at + 50 * MS, tag="confirm-again", port=50011)
    confirmed = confirm_ack(s, again)
    stream(s, confirmed.arrives)
    s.end(confirmed.arrives + 60 * US)
    s.keeps("CONN-022", "CONN-023", "CONN-024", "CONN-018", "CONN-025", "CONN-015", "CONN-005", "CONN-044", "CONN-019")
    yield s
    yield s.wrong("impatient", "The OPEN is repeated after 20 ms.", {"CONN-023": "open-again"}, impatient)
    yield s.wrong("new-transaction", "The repetition of CONFIRM bears a transaction id of its own, so that it is no repetition.",
                  {"CONN-022": "confirm-again"}, new_transaction, drop=("CONN-018", "CONN-025", "CONN-044"))
    yield s.wrong("not-again", "The acceptor does not answer the second CONFIRM.", {"CONN-018": "end"}, not_again,
                  drop=("CONN-025", "CONN-019"))
    yield s.wrong("same-port", "Both repetitions leave from the port of the first attempt.", {"CONN-044": "open-again"}, same_port)


def impatient(c):
    c["open-again"].at = 20 * MS
    c["open-again"].fate = {"delivered": {"arrives_ns": 50 * MS + 20 * US}}


def new_transaction(c):
    c.set("confirm-again", "CBH", psn=0x60)
    c.set("confirmed", "CBH", psn=0x60)


def not_again(c):
    c.drop("confirmed", "stream", "stream-open")
    c.cut("confirm-again", c["confirm-again"].arrives + 10 * US)


def same_port(c):
    for tag in ("open-again", "confirm-again"):
        c[tag].port = 50000


SUBJECTS = {
    "set-up-and-close": set_up_and_close,
    "set-up-refused-by-version": set_up_refused,
    "set-up-refused-by-service": service_refused,
    "rough-set-up": rough_set_up,
}
