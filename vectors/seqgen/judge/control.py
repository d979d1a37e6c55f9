"""Control: requests, answers, and the handshake."""

from .. import wire

ANSWER = {"PATH_RETIRE": "PATH_RETIRED", "OPEN": "ACCEPT", "CONFIRM": "CONFIRM_ACK", "CLOSE": "CLOSE_ACK", "STREAM_OPEN": "STREAM_OPEN_ACK"}
FIRST_PAUSE = 50_000_000


class Control:
    """Both sides of one connection."""

    def __init__(self, connection):
        self.c, self.judge = connection, connection.judge
        self.requests = {}    # (side, name, transaction) -> fields of the first transmission
        self.used = {}        # side -> {transaction: name}
        self.times = {}       # request -> times of sending
        self.ports = {}       # request -> source port of the latest one
        self.answers = {}     # (side, name, transaction) -> body
        self.got = {}         # name -> fields of the last one that arrived, with its side
        self.answered, self.unasked = set(), set()
        self.confirmed = {side: connection.given["established"] for side in wire.SIDES}
        self.closing = {side: None for side in wire.SIDES}
        # Streams that a side has asked for and has no answer to, and those on which it may send.
        self.asked_streams = {side: set() for side in wire.SIDES}
        self.may_send = {side: set(connection.streams) for side in wire.SIDES}
        self.no_credit = {}   # side -> when the latest answer without credit came

    @staticmethod
    def body(fields):
        return {layer: values for layer, values in fields.items() if layer != "CBH"}

    def sent(self, step, side, name):
        fields = step["fields"]
        transaction = fields["CBH"]["psn"]
        self.judge.met(("answer", self.c.number, side, name, transaction))
        if name in ANSWER or name in ("PATH_PROBE", "PATH_CHANGE", "PATH_RETIRE", "STREAM_RESET") or (name == "RQ_CREDIT" and fields["RQ_CREDIT"]["kind"] == 0):
            self.request(side, name, transaction, fields, step["source_port"])
        else:
            self.answer(side, name, transaction, fields)
        rule = getattr(self, name.lower() + "_sent", None)
        if rule:
            rule(side, fields)

    def rate_hint_sent(self, side, fields):
        self.hint_told(side, fields["RATE_HINT"])

    def request(self, side, name, transaction, fields, port):
        check, now = self.judge.check, self.judge.now
        key = side, name, transaction
        open_ones = [k for k in self.requests if k[:2] == key[:2] and k not in self.answered]
        if key in self.requests:
            check("CONN-022", self.body(fields) == self.body(self.requests[key]))
            if name != "PATH_PROBE":
                times = self.times[key]
                pause = max(FIRST_PAUSE, 2 * (times[-1] - times[-2]) if len(times) > 1 else 0)
                check("CONN-023", now - times[-1] >= pause)
                check("CONN-024", len(times) <= 7)
                check("CONN-044", port != self.ports[key])
            self.times[key].append(now)
            self.ports[key] = port
            return
        same = [k for k in open_ones if self.body(self.requests[k]) == self.body(fields)
                and all(self.requests[k]["CBH"][name] == fields["CBH"][name] for name in ("path", "epoch"))]
        if same and name not in ("PATH_PROBE", "RQ_CREDIT"):
            check("CONN-022", False)
        check("CONN-014", transaction not in self.used.get(side, {}))
        self.used.setdefault(side, {})[transaction] = name
        self.requests[key], self.times[key], self.ports[key] = fields, [now], port

    def answer(self, side, name, transaction, fields):
        key = side, name, transaction
        if key in self.answers and name in ("CONFIRM_ACK", "CLOSE_ACK", "STREAM_OPEN_ACK"):
            self.judge.check("CONN-025", self.answers[key] == self.body(fields))
        self.answers.setdefault(key, self.body(fields))

    def arrived(self, step, side, name):
        """A packet of control has come to `side`."""
        fields = step["fields"]
        transaction, peer = fields["CBH"]["psn"], step["from"]
        again = self.got.get((side, name, transaction))
        self.got[side, name, transaction] = fields
        for request, answer in ANSWER.items():
            if answer == name:
                self.answered.add((side, request, transaction))
        now, due = self.judge.now, self.judge.due
        key = ("answer", self.c.number, side, ANSWER.get(name), transaction)
        if name == "OPEN":
            self.open_arrived(fields, now, transaction)
        elif name == "CONFIRM":
            wrong = self.body(fields)["CONFIRM"]["cookie"] != self.cookie()
            answer = "REJECT" if wrong else "CONFIRM_ACK"
            clause = "CONN-017" if wrong else "CONN-018" if again else None
            if clause:
                due(clause, key[:3] + (answer, transaction), now)
        elif name == "CLOSE":
            due("CONN-029" if again else "CONN-026", key, now)
        elif name == "RQ_CREDIT" and fields["RQ_CREDIT"]["kind"] == 0:
            due("STRM-029", ("answer", self.c.number, side, "RQ_CREDIT", transaction), now)
        elif name == "RQ_CREDIT":
            if fields["RQ_CREDIT"]["rq_limit"] == self.c.work[side].heard.get(fields["RQ_CREDIT"]["stream"]):
                self.no_credit[side] = now
            self.c.work[side].limit_heard(fields["RQ_CREDIT"]["stream"], fields["RQ_CREDIT"]["rq_limit"])
        elif name == "CONFIRM_ACK":
            self.confirmed[side] = True
        elif name == "RATE_HINT":
            self.hint_heard(side, fields["CBH"], fields[name])
        elif name == "STREAM_OPEN_ACK":
            self.c.work[side].limit_heard(fields[name]["stream"], fields[name]["rq_limit"])
            self.opened(peer, fields[name])
            self.asked_streams[side].discard(fields[name]["stream"])
            if fields[name]["status"] == 0:
                self.may_send[side].add(fields[name]["stream"])
        rule = getattr(self, name.lower() + "_arrived", None)
        if rule and name != "OPEN":
            rule(side, fields)

    # --- handshake ----------------------------------------------------------------------------------------------------

    def open_arrived(self, fields, now, transaction):
        params, own = fields["params"], self.c.given
        name, clause = "ACCEPT", "CONN-005"
        if not params["ver_min"] <= 1 <= params["ver_max"]:
            name, clause = "REJECT", "CONN-009"
        elif params["service_id"] != own["service_id"]:
            name, clause = "REJECT", "CONN-010"
        self.wanted = {"CONN-009": 1, "CONN-010": 2}.get(clause), clause
        self.judge.due(clause, ("answer", self.c.number, "acceptor", name, transaction), now)

    def last(self, side, name):
        found = [f for (s, n, _), f in self.got.items() if (s, n) == (side, name)]
        return found[-1] if found else None

    def cookie(self):
        accept = next((b for (s, n, _), b in self.answers.items() if n == "ACCEPT"), None)
        return accept and accept["ACCEPT"]["cookie"]

    def open_sent(self, side, fields):
        self.judge.check("CONN-002", set(fields["OPEN"]["padding"]) == {"0"})
        self.judge.check("CONN-004", fields["params"]["scid"] != 0)

    def accept_sent(self, side, fields):
        check, asked = self.judge.check, self.last("acceptor", "OPEN")
        if asked is None:
            return
        said, offer = fields["params"], asked["params"]
        check("CONN-005", fields["CBH"]["psn"] == asked["CBH"]["psn"])
        check("CONN-006", True)
        check("CONN-007", all(said[k] <= offer[k] for k in ("paths", "streams", "msg_window", "payload_size")))
        check("CONN-008", said["ver_min"] == said["ver_max"] and offer["ver_min"] <= said["ver_min"] <= offer["ver_max"])
        check("CONN-004", said["scid"] != 0)
        check("CONN-033", not said["features"] & ~offer["features"] and said["extra_planes"] <= offer["extra_planes"])

    def reject_sent(self, side, fields):
        check = self.judge.check
        reject, transaction = fields["REJECT"], fields["CBH"]["psn"]
        asked = self.got.get(("acceptor", "CONFIRM", transaction)) or self.last("acceptor", "OPEN")
        check("CONN-006", True)
        check("CONN-011", transaction == asked["CBH"]["psn"] and reject["nonce"] == asked["params"]["nonce"])
        if "CONFIRM" in asked:
            check("CONN-017", reject["reason"] == 5)
        elif self.wanted[0]:
            check(self.wanted[1], reject["reason"] == self.wanted[0])

    def confirm_sent(self, side, fields):
        check, accept = self.judge.check, self.last("initiator", "ACCEPT")
        asked = next(f for (s, n, _), f in self.requests.items() if n == "OPEN")
        check("CONN-012", (fields["params"], fields["planes"]) == (asked["params"], asked["planes"]))
        check("CONN-013", (fields["accepted"], fields["accepted_planes"], fields["CONFIRM"]["cookie"])
              == (accept["params"], accept["planes"], accept["ACCEPT"]["cookie"]))
        said, offer = accept["params"], asked["params"]
        check("CONN-039", said["ver_min"] == 1 and not said["features"] & ~offer["features"]
              and all(said[k] <= offer[k] for k in ("paths", "streams", "msg_window", "payload_size", "extra_planes")))

    def confirm_ack_sent(self, side, fields):
        check, asked = self.judge.check, self.last("acceptor", "CONFIRM")
        check("CONN-015", (fields["CBH"]["psn"], fields["CONFIRM_ACK"]["nonce"]) == (asked["CBH"]["psn"], asked["params"]["nonce"]))
        check("CONN-016", asked["CONFIRM"]["cookie"] == self.cookie())
        self.confirmed[side] = True

    # --- streams and the end ------------------------------------------------------------------------------------------

    def stream_open_sent(self, side, fields):
        self.judge.check("STRM-001", fields["STREAM_OPEN"]["stream"] % 2 == wire.SIDES.index(side))
        self.judge.check("STRM-042", fields["STREAM_OPEN"]["status"] == 0)
        if fields["STREAM_OPEN"]["stream"] not in self.may_send[side]:
            self.asked_streams[side].add(fields["STREAM_OPEN"]["stream"])
            self.c.work[side].told.setdefault(fields["STREAM_OPEN"]["stream"], fields["STREAM_OPEN"]["rq_limit"])
        self.may_begin(side)

    def stream_open_ack_sent(self, side, fields):
        body = fields["STREAM_OPEN_ACK"]
        asked = self.got.get((side, "STREAM_OPEN", fields["CBH"]["psn"]))
        same = ("stream", "first_msn", "first_rqsn")
        self.judge.check("STRM-002", asked is not None and all(asked["STREAM_OPEN"][k] == body[k] for k in same))
        if asked:
            self.judge.check("STRM-043", body["dst_qpn"] == asked["STREAM_OPEN"]["src_qpn"])
            self.c.work[side].limit_heard(body["stream"], asked["STREAM_OPEN"]["rq_limit"])
            self.opened(side, body)
            if body["status"] == 0:
                self.may_send[side].add(body["stream"])

    def opened(self, side, body):
        if body["status"] == 0:
            known = self.c.streams.setdefault(body["stream"], {"stream": body["stream"], "first_msn": body["first_msn"],
                                                               "first_rqsn": body["first_rqsn"], "rq_limit": {}})
            known["rq_limit"].setdefault(side, body["rq_limit"])

    def may_begin(self, side):
        self.judge.check("CONN-019" if side == "initiator" else "CONN-020", self.confirmed[side])

    def message_begins(self, side):
        """A side sends the first packet of a message."""
        if not self.c.given["established"]:
            self.may_begin(side)
        if self.closing[side] is None:
            return
        self.judge.check("CONN-028" if self.closing[side] == "answered" else "CONN-027", False)

    def close_sent(self, side, fields):
        self.closing[side] = self.closing[side] or "asked"
        self.judge.exercised.add("CONN-027")

    def close_ack_sent(self, side, fields):
        asked = self.got.get((side, "CLOSE", fields["CBH"]["psn"])) or self.last(side, "CLOSE")
        self.judge.check("CONN-026", asked is not None and asked["CBH"]["psn"] == fields["CBH"]["psn"]
                         and asked["CLOSE"]["reason"] == fields["CLOSE_ACK"]["reason"])
        self.closing[side] = "answered"
        self.judge.exercised.add("CONN-028")

    def rq_credit_sent(self, side, fields):
        body, check = fields["RQ_CREDIT"], self.judge.check
        if body["kind"] == 0:
            self.c.work[side].asked(body["stream"])
            if side in self.no_credit:
                check("RCV-006", self.judge.now - self.no_credit[side] >= 50_000_000)
            return
        self.c.work[side].limit_told(body["stream"], body["rq_limit"])
        asked = [t for (s, n, t), f in self.got.items() if (s, n) == (side, "RQ_CREDIT") and f["RQ_CREDIT"]["kind"] == 0]
        if fields["CBH"]["psn"] not in asked:
            check("RCV-017", fields["CBH"]["psn"] not in self.unasked or not self.unasked.add(fields["CBH"]["psn"]))
        if fields["CBH"]["psn"] in asked:
            check("STRM-029", self.got[side, "RQ_CREDIT", fields["CBH"]["psn"]]["RQ_CREDIT"]["stream"] == body["stream"])

    # --- rate hints: see hints.py -------------------------------------------------------------------------------------

    def hint_told(self, side, body):
        given = self.c.given[side]
        if given["hint_support"] and "capacity_mbps" in given:
            self.judge.hints.hint_sent(self.c.number, given, body)

    def hint_heard(self, side, cbh, body):
        if self.c.given[wire.other(side)]["hint_support"]:
            self.judge.hints.hint_came(self.c, side, cbh["timestamp"], body)
