"""NAKs, resets of streams, and receivers that are not ready: both sides of one direction."""

from .. import wire

RNR, REM_INV_REQ, REM_ACCESS, REM_OP, LENGTH, NO_RESOURCE = 0x02, 0x10, 0x11, 0x12, 0x13, 0x03
FATAL = {REM_INV_REQ, REM_ACCESS, REM_OP, LENGTH, NO_RESOURCE}
STREAM, CONNECTION = 1, 3
CLAUSE = {REM_ACCESS: "STRM-034", LENGTH: "STRM-035", RNR: "RCV-009"}


class Refusals:
    """What side `side` refuses of its peer's packets, and what becomes of refusals of its own."""

    def __init__(self, work):
        self.w, self.judge, self.c, self.side, self.peer = work, work.judge, work.c, work.side, work.peer
        self.refused = {}     # (path, epoch, psn) -> (code, fields) of the peer's packets
        self.messages = set() # messages of the peer that were refused as a whole
        self.named = {}       # (path, epoch, psn) -> when a packet of this side may go again
        self.failed = {}      # stream -> (msn, code) of this side's work
        self.reset_sent, self.reset_got = {}, set()
        self.flushed = set()

    # --- the receiving side -------------------------------------------------------------------------------------------

    def refuse(self, step, code, clause=None):
        """A packet fails a check: an answer is due, unless the message was refused before."""
        fields = step["fields"]
        cbh, msgh = fields["CBH"], fields["MSGH"]
        key = cbh["path"], cbh["epoch"], cbh["psn"]
        self.refused[key] = code, fields
        message = msgh["stream"], msgh["msn"]
        if code != RNR and message in self.messages:
            return
        if code != RNR:
            self.messages.add(message)
        self.expect(step, code, clause or CLAUSE[code])

    def expect(self, step, code, clause):
        """A NAK of this code is due at once."""
        cbh = step["fields"]["CBH"]
        key = cbh["path"], cbh["epoch"], cbh["psn"]
        self.judge.due(clause, ("nak", self.c.number, self.side, *key, code), self.judge.now)

    def settled(self, key):
        """The packet has been taken after all."""
        self.refused.pop(key, None)

    def codes(self, path, epoch):
        return {psn: code for (p, e, psn), (code, _) in self.refused.items() if (p, e) == (path, epoch)}

    def nak_sent(self, step, nak):
        check, cbh = self.judge.check, step["fields"]["CBH"]
        key = cbh["path"], cbh["epoch"], nak["offending_psn"]
        found = self.refused.get(key)
        check("ERR-001", found is not None and (found[1]["MSGH"]["stream"], found[1]["MSGH"]["msn"]) == (nak["stream"], nak["msn"]))
        check("PKT-022", cbh["dcid"] == self.c.given[self.peer]["cid"])
        scope = STREAM if "RESET" in self.c.features else CONNECTION
        if nak["code"] in FATAL:
            check("ERR-002", nak["scope"] == scope)
            if nak["code"] in CLAUSE:
                check(CLAUSE[nak["code"]], nak["scope"] == scope)
        if nak["code"] == RNR:
            check("RCV-009", nak["scope"] == 0)
            check("RCV-010", 10 <= nak["detail"] <= 1_000_000)
        if found:
            self.judge.met(("nak", self.c.number, self.side, *key, nak["code"]))

    def reset_arrived(self, fields):
        body = fields["STREAM_RESET"]
        self.reset_got.add(body["stream"])
        self.judge.due("ERR-010", ("answer", self.c.number, self.side, "STREAM_RESET_ACK", fields["CBH"]["psn"]), self.judge.now)
        self.judge.void(lambda k: k[0] == "nak" and k[1:3] == (self.c.number, self.side))

    def over(self, stream):
        return stream in self.reset_sent or stream in self.reset_got

    # --- the sending side ---------------------------------------------------------------------------------------------

    def nak_arrived(self, step):
        fields = step["fields"]
        cbh, nak = fields["CBH"], fields["NAK"]
        key = cbh["path"], cbh["epoch"], nak["offending_psn"]
        sender = self.c.senders[self.side]
        path = sender.outgoing.get(key[:2])
        sent = path.sent.get(nak["offending_psn"]) if path else None
        msgh = sent[0][2]["fields"]["MSGH"] if sent else {}
        if not sent or path.arrived(nak["offending_psn"]) or (msgh["stream"], msgh["msn"]) != (nak["stream"], nak["msn"]):
            self.judge.exercised.add("ERR-007")
            return
        if nak["code"] == RNR:
            self.named[key] = self.judge.now + nak["detail"] * 1000
            self.judge.due("RCV-013", sender.key(cbh, key[2]), self.judge.now + 2 * nak["detail"] * 1000 + 10_000_000)
        elif nak["scope"] in (STREAM, CONNECTION) and nak["stream"] not in self.failed:
            self.named[key] = None
            self.failed[nak["stream"]] = nak["msn"], nak["code"]
            if nak["scope"] == STREAM:
                self.judge.due("ERR-006", ("reset", self.c.number, self.side, nak["stream"]), self.judge.now)

    def reset_out(self, fields):
        body, check = fields["STREAM_RESET"], self.judge.check
        if body["stream"] in self.failed:
            check("ERR-006", (body["msn"], body["code"]) == self.failed[body["stream"]])
        self.reset_sent[body["stream"]] = self.judge.now
        self.judge.met(("reset", self.c.number, self.side, body["stream"]))

    def reset_ack_out(self, fields):
        self.judge.check("ERR-010", fields["STREAM_RESET_ACK"]["stream"] in self.reset_got)

    def may_go_again(self, cbh, psn):
        """When a packet that was refused with RNR may go again."""
        return self.named.get((cbh["path"], cbh["epoch"], psn)) or 0

    def held(self, cbh, psn):
        """Whether a packet has been refused, so that no loss of it has to be repaired."""
        return (cbh["path"], cbh["epoch"], psn) in self.named

    def data_sent(self, step, again):
        fields, check = step["fields"], self.judge.check
        stream = fields["MSGH"]["stream"]
        if step["packet"] == "FILL":
            check("ERR-014", self.over(stream))
            check("PKT-023", not any(fields["MSGH"][k] for k in ("mflags", "msn", "offset", "len")))
            check("PKT-020", fields["MSGH"]["rqsn"] == 0)
            if stream in self.flushed:
                check("ERR-013", True)
        elif stream in self.flushed:
            check("ERR-013", False)

    def completion(self, values, work, before):
        """Work of a stream or connection that has failed; gives whether that was all to say."""
        check, stream, status = self.judge.check, values["stream"], values["status"]
        if any(w["state"] not in (None, "IBV_WC_SUCCESS") for w in before):
            check("VERB-008", status != "IBV_WC_SUCCESS")
        if stream not in self.failed:
            if self.failed:
                check("ERR-017", status == "IBV_WC_SUCCESS")
                return status != "IBV_WC_SUCCESS"
            return False
        self.flushed.add(stream)
        msn, code = self.failed[stream]
        wanted = {REM_ACCESS: ("STRM-036", "IBV_WC_REM_ACCESS_ERR"), LENGTH: ("STRM-038", "IBV_WC_REM_INV_REQ_ERR"),
                  REM_INV_REQ: ("VERB-001", "IBV_WC_REM_INV_REQ_ERR")}.get(code, ("VERB-002", "IBV_WC_REM_OP_ERR"))
        if work["msn"] == msn:
            check(wanted[0], status == wanted[1])
        else:
            check("STRM-037", status == "IBV_WC_WR_FLUSH_ERR")
            self.judge.exercised.add("VERB-008")
        return True
