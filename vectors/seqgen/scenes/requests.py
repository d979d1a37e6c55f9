"""Reads, atomics, immediate data and invalidation."""

from ..build import MS, RKEY, US, VA, Scene, pattern
from ..wire import AR, wide

LOCAL = 0x0000_5500_0000_0000


def read():
    s = Scene("read-with-a-lost-response", "A Read, and a packet of its response lost",
              "The request is one packet and is acknowledged when it is queued. The response comes as data of the other direction, under PSNs of that direction and the MSN of "
              "the request. Its second packet is lost and repaired like any other; the Read completes when all of it is there.", depth=(0, 2))
    held = pattern(9, 700)
    s.region("acceptor", allow=("remote_read",), data=held)
    ask = s.post(0, "initiator", "READ_REQ", 1, held, va=wide(VA), rkey=RKEY, local=wide(LOCAL))
    request = s.tx(1000, ask, tag="request")
    s.ack(request.arrives, "acceptor", tag="queued")
    answer = s.reply(ask, "READ_RESP", held)
    parts = [s.tx(request.arrives + k * 400, answer, k, lost=k == 1, delay=20 * US + 200, tag=f"part{k}") for k in range(3)]
    gap = s.ack(parts[2].arrives, "initiator", tag="gap")
    again = s.rtx(gap.arrives, parts[1], AR, tag="again")
    s.ack(again.arrives, "initiator", tag="full")
    s.look(again.arrives, "initiator", LOCAL, held, tag="look")
    s.finished(again.arrives, ask, tag="done")
    s.end(s["full"].arrives + 10 * US)
    s.keeps("OPS-001", "OPS-013", "OPS-015", "OPS-016", "OPS-017", "OPS-018", "OPS-020", "OPS-021", "OPS-036", "OPS-048", "PKT-018", "PKT-019", "PKT-020",
            "PKT-021", "REL-001", "REL-017", "REL-026", "REL-027", "REL-031", "STRM-014", "STRM-016", "STRM-028")
    yield s
    yield s.wrong("completed-too-early", "The Read is reported as done when the last packet of the response has come.", {"OPS-021": "done"},
                  completed_early)
    yield s.wrong("answered-afresh", "Instead of the missing packet the responder sends the whole response again under new PSNs.",
                  {"OPS-018": "new0", "REL-026": "new0", "REL-031": "later"}, afresh,
                  drop=("REL-027", "OPS-020", "OPS-021", "OPS-036", "STRM-028"))
    yield s.wrong("from-another-place", "The third packet of the response carries bytes from the start of the region.", {"OPS-017": "part2"}, elsewhere,
                  drop=("OPS-020", "OPS-021", "REL-031", "REL-026", "REL-027", "REL-017", "OPS-036", "STRM-028"))
    yield s.wrong("read-anew", "The repair carries what the memory holds by then, which has changed.", {"OPS-036": "again", "REL-027": "again"}, read_anew,
                  drop=("OPS-020", "OPS-021", "STRM-028"))
    yield s.wrong("other-request", "The response bears the MSN of a request that was never made.", {"OPS-016": "part0", "OPS-048": "part1"}, other_request,
                  drop=("OPS-020", "OPS-021", "REL-031", "REL-026", "REL-027", "REL-017", "OPS-036", "STRM-028", "OPS-017", "OPS-015", "OPS-018"))


def completed_early(c):
    c["done"].at = c["part2"].arrives


def afresh(c):
    at, isn = c["gap"].arrives, c["part0"].cbh["psn"]
    c.drop("again", "full")
    import copy
    for k in range(3):
        fields = copy.deepcopy(c[f"part{k}"].fields)
        fields["CBH"]["psn"] = isn + 3 + k
        c.packet(at + k * 400, "acceptor", fields, 0, "ect0", f"new{k}")
    c.tags["later"] = c["new1"]
    c.cut("new2", c["new2"].at + 1000)


def elsewhere(c):
    fields = c["part2"].fields
    fields["payload"]["payload"] = pattern(9, 188).hex()
    c.cut("part2", c["part2"].at + 1000)


def read_anew(c):
    c["again"].fields["payload"]["payload"] = "ee" * 256
    c.cut("again", c["again"].at + 1000)


def other_request(c):
    for k in range(3):
        c.set(f"part{k}", "MSGH", msn=2)
    c.cut("part2", c["part2"].at + 1000)


def atomic():
    s = Scene("fetch-and-add-once", "Fetch-and-add, its acknowledgment and its response lost",
              "The request arrives and is carried out: 41 becomes 42. Acknowledgment and response are lost, and so is the probe. After its timeout the requester repeats the "
              "request from another port: a duplicate, which is acknowledged and not carried out again. The responder's probe shows that its response is missing, and "
              "the same response goes again, with the value from before.", depth=(0, 0), atomics=(0, 1))
    s.region("acceptor", allow=("remote_write", "remote_atomic"), data=(41).to_bytes(8, "little"))
    warm = s.write(0, 1, 64, va=VA + 0x100)
    first = s.tx(1000, warm)
    ok = s.ack(first.arrives, "acceptor")
    s.finished(ok.arrives, warm)
    add = s.post(1 * MS, "initiator", "FETCH_ADD", 2, bytes(8), va=wide(VA), rkey=RKEY, swap_or_add=wide(1), compare=wide(0), local=wide(LOCAL))
    request = s.tx(1 * MS, add, tag="request")
    s.ack(request.arrives, "acceptor", lost=True, tag="queued")
    answer = s.reply(add, "ATOMIC_RESP", bytes(8), original=wide(41))
    response = s.tx(request.arrives, answer, lost=True, tag="response")
    s.probe(request.at + 2 * MS, "initiator", 0, 1, request.cbh["psn"], lost=True)
    s.event(request.at + 10 * MS, "initiator", "timer", name="retransmission")
    s.event(request.at + 10 * MS, "initiator", "port_change", path=0, source_port=50100)
    again = s.rtx(request.at + 10 * MS, request, port=50100, tag="again")
    s.ack(again.arrives, "acceptor", tag="duplicate", port=51009)
    probe = s.probe(response.at + 50 * MS, "acceptor", 0, 1, response.cbh["psn"], tag="probe")
    said = s.probe_ack(probe.arrives, probe, tag="said")
    same = s.rtx(said.arrives, response, tag="same")
    full = s.ack(same.arrives, "initiator", tag="full")
    s.look(same.arrives, "initiator", LOCAL, (41).to_bytes(8, "little"))
    s.finished(same.arrives, add, tag="done")
    s.look(same.arrives + US, "acceptor", VA, (42).to_bytes(8, "little"), tag="look")
    s.end(full.arrives + 10 * US)
    s.keeps("OPS-001", "OPS-024", "OPS-027", "OPS-028", "OPS-029", "OPS-031", "OPS-032", "OPS-042", "OPS-049", "PATH-019", "REL-018", "REL-020", "REL-026", "REL-027",
            "REL-035", "REL-040", "REL-048", "PKT-029", "PKT-020", "PKT-021", "ECN-005", "STRM-028")
    yield s
    yield s.wrong("added-twice", "The duplicate is carried out as well.", {"OPS-029": "look"},
                  lambda c: c["look"].what["memory"].update(hex=(43).to_bytes(8, "little").hex()), drop=("OPS-027",))
    yield s.wrong("value-of-now", "The repeated response carries the value that the memory holds by then.", {"OPS-042": "same", "REL-027": "same"},
                  value_of_now)
    yield s.wrong("value-after", "The response carries the value after the operation.", {"OPS-028": "response"}, value_after,
                  drop=("OPS-042", "OPS-029", "PATH-019", "OPS-027", "REL-018", "REL-020", "REL-026", "REL-027", "REL-035", "REL-040", "REL-048", "ECN-005"))
    yield s.wrong("second-response", "The duplicate draws a response of its own under a new PSN.", {"OPS-029": "extra", "REL-026": "extra"}, second_response,
                  drop=("OPS-027", "REL-040", "OPS-042"))
    yield s.wrong("not-added", "The value is returned but nothing is added.", {"OPS-027": "look"},
                  lambda c: c["look"].what["memory"].update(hex=(41).to_bytes(8, "little").hex()), drop=("OPS-029",))


def value_of_now(c):
    c.set("same", "ATOMIC_RESP", original=wide(42))
    c.cut("same", c["same"].at + 1000)
    c.satisfies = [x for x in c.satisfies if x not in ("OPS-027",)]


def value_after(c):
    c.set("response", "ATOMIC_RESP", original=wide(42))
    c.cut("response", c["response"].at + 1000)


def second_response(c):
    import copy
    fields = copy.deepcopy(c["response"].fields)
    fields["CBH"]["psn"] += 1
    c.packet(c["again"].arrives + 200, "acceptor", fields, 0, "ect0", "extra")
    c.cut("extra", c["extra"].at + 1000)


def immediate():
    s = Scene("immediate-data", "A Write with immediate data, and a Send that carries some",
              "The Write consumes the receive 0 and leaves its buffer alone; its last packet is solicited. The Send consumes the receive 1. Every packet of a message "
              "carries its immediate data.", limits=(0, 2), features=("IMM",))
    s.region("acceptor")
    for n in range(2):
        s.receive("acceptor", 0, n, 512, 100 + n, VA + 0x8000 + n * 512)
    w = s.post(0, "initiator", "WRITE_IMM", 1, pattern(1, 300), va=wide(VA), rkey=RKEY, imm=0xCAFE0001)
    k0 = s.tx(1000, w, 0, tag="k0")
    k1 = s.tx(1400, w, 1, 0, 0x20, tag="k1")
    b = s.post(2000, "initiator", "SEND_IMM", 2, pattern(2, 100), imm=0xCAFE0002)
    send = s.tx(2000, b, tag="send")
    a1 = s.ack(k1.arrives, "acceptor", tag="ack1")
    a2 = s.ack(send.arrives, "acceptor", tag="ack2")
    s.look(k1.arrives, "acceptor", VA, w.data)
    s.look(k1.arrives, "acceptor", VA + 0x8000, bytes(300), tag="buffer")
    s.done(k1.arrives, "acceptor", 100, "recv", 300, imm=0xCAFE0001, tag="recv0")
    s.look(send.arrives, "acceptor", VA + 0x8200, b.data)
    s.done(send.arrives, "acceptor", 101, "recv", 100, imm=0xCAFE0002, tag="recv1")
    s.finished(a1.arrives, w)
    s.finished(a2.arrives, b)
    s.end(a2.arrives + 10 * US)
    assert k0.at
    s.keeps("OPS-001", "OPS-003", "OPS-004", "OPS-005", "OPS-006", "OPS-037", "PKT-018", "RCV-002", "STRM-007", "STRM-010", "STRM-019", "STRM-020",
            "STRM-024", "STRM-025", "STRM-026")
    yield s
    yield s.wrong("once-only", "Only the last packet of the Write carries the immediate data.", {"OPS-003": "k1"}, lambda c: c.set("k0", "TAGH", imm=0))
    yield s.wrong("nothing-handed-over", "The completion of the second receive has no immediate data.", {"OPS-004": "recv1"},
                  lambda c: c["recv1"].what["completion"].pop("imm"))
    yield s.wrong("into-the-buffer", "The receiver puts the bytes of the Write into the buffer of the receive as well.", {"OPS-005": "buffer"},
                  lambda c: c["buffer"].what["memory"].update(hex=pattern(1, 300).hex()))
    yield s.wrong("solicited-at-the-start", "SE stands on the first packet.", {"OPS-037": "k0"}, solicited)
    yield s.wrong("other-receive-length", "The receive that the Write consumes completes with length 0.", {"OPS-006": "recv0"},
                  lambda c: c["recv0"].what["completion"].update(byte_len=0))
    yield s.wrong("not-agreed", "Immediate data was not agreed.", {"OPS-001": "k0"}, not_agreed,
                  drop=("OPS-003", "OPS-004", "OPS-005", "OPS-006", "OPS-037", "RCV-002", "STRM-019", "STRM-020", "STRM-024", "STRM-025", "STRM-026", "STRM-010"))


def solicited(c):
    c.set("k0", "CBH", flags=0x20)
    c.set("k1", "CBH", flags=0)


def not_agreed(c):
    c.connections[0]["features"] = []
    c.cut("k0", c["k0"].at + 100)


SUBJECTS = {"read-with-a-lost-response": read, "fetch-and-add-once": atomic, "immediate-data": immediate}
