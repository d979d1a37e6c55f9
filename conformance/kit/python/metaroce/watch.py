"""A watch over one endpoint: every packet that leaves it or reaches it is held against what the clauses allow.

It knows only what passes on the wire, and is sound rather than complete: where it cannot tell whether the endpoint
had already heard of something, it says nothing. `left` is called with packets of the watched endpoint, `reached` with
packets that are delivered to it, both in order of time. Violations are collected in `violations`.
"""

from collections import Counter, deque

from . import wire
from .codec import Malformed, decode
from .recvpath import CE, ECT0, ECT1
from .reliability import reported, vector_bits
from .serial import add, ahead
from .settings import MS

OPS = wire.OPCODE
class Clock:
    """When packets left, by their own timestamps: how late they are seen does not matter then."""

    def __init__(self):
        self.improved = 0
        self.state = {}   # unit is learned with the handshake; before it packets count as they are seen

    def leave_time(self, stamp, unit, now):
        if not self.state:
            self.state = {"stamp": stamp, "local": 0, "offset": now}
            return now
        state = self.state
        expected = (now - state["offset"] - state["local"]) // unit     # how far the timestamp should have come
        step = ahead(stamp, (state["stamp"] + expected) & 0xFFFFFFFF) + expected
        local = state["local"] + step * unit
        self.improved = max(0, state["offset"] - (now - local))   # by how much all before it left earlier than was thought
        state["offset"] -= self.improved
        if step > 0:
            state["stamp"], state["local"] = stamp, local
        return local + state["offset"]


REQUESTS = ("OPEN", "CONFIRM", "CLOSE", "STREAM_OPEN", "STREAM_RESET", "PATH_RETIRE", "RQ_CREDIT")


class SentPacket:
    def __init__(self, packet, order, now):
        self.first = packet
        self.orders = [order]
        self.times = [now]
        self.stamps = [packet.timestamp]
        self.acked_at = None       # when a report of its arrival was delivered
        self.acked_index = self.acked_by = None   # which delivery that was, and to which own address
        self.nak_order = -1        # order of its transmission that a NAK RNR has refused
        self.fill = False


class PathOut:
    """A path of the direction that the watched endpoint sends."""

    def __init__(self, isn):
        self.epoch, self.first, self.next = 0, isn, isn
        self.cum = add(isn, -1)
        self.sent = {}
        self.order = 0
        self.arrived_order = 0
        self.stamps = {}
        self.last_data = self.last_report = -1 << 62
        self.new_before_report = 0
        self.heard = False
        self.probes = {}           # transaction id -> (order, time)
        self.answered = set()      # those that have been answered
        self.lost_before = -1      # order up to which a probe's answer or a timeout has shown losses
        self.retiring = False
        self.retired_cum = None
        self.probed_epoch = None   # epoch of which a probe has been answered
        self.last_time = -1 << 62  # latest time at which nothing was heard for long
        self.run_probe = None
        self.window = 16               # no window that the rules allow is larger


class PathIn:
    """A path of the direction that the watched endpoint receives."""

    def __init__(self, isn):
        self.epoch = 0
        self.start(add(isn, -1))
        self.retired = {}

    def start(self, cum):
        self.cum, self.got = cum, set()    # what may have been taken
        self.marks = {CE: set(), ECT0: set()}   # PSNs that have come with such a mark
        self.cum_told, self.bits_told = cum, set()
        self.ce_told = self.ect_told = 0
        self.duplicates = 0
        self.stamps = {}                   # timestamps delivered on the path -> RTX, stream


class Watch:
    def __init__(self, name, local_addresses, port, certain=1 * MS, exact=False):
        """`certain` is how long after a delivery an endpoint that is awake has probably processed it; `exact` in simulated time."""
        self.name, self.addresses, self.port = name, set(local_addresses), port
        self.certain, self.exact = 0 if exact else certain, exact
        self.violations = []
        self.counts = Counter()
        self.log = deque(maxlen=200000)
        self.own = self.peer = self.agreed = None     # PARAMS
        self.out, self.into = {}, {}
        self.requests = {}
        self.txids = []
        self.deliveries = 0
        self.processed = Counter()    # by own address: deliveries that the endpoint has surely processed
        self.delivered_to = None      # own address of the packet that is delivered now
        self.stamp_delivery = {}      # (path, timestamp) of delivered data -> number of the delivery
        self.limits = {}              # stream -> largest RqLimit delivered
        self.told_limits = {}         # stream -> largest RqLimit sent
        self.streams = {}             # stream -> {"msn", "rqsn", messages}
        self.reset = set()            # streams for which STREAM_RESET has been sent or was delivered
        self.reset_sent = {}
        self.closed_sent = self.close_ack_sent = False
        self.last_stamp = {}
        self.left_times = deque(maxlen=200)
        self.hints_given = False
        self.capacity = None
        self.hints = []               # (time of delivery, rate) in the order of their timestamps
        self.hint_stamp = None
        self.spent = deque()          # (time, bytes of the IP packet) of data packets
        self.own_hint = None          # (timestamp, epoch, rate) that the endpoint has sent last
        self.suspect = []             # what would be wrong if the endpoint had processed a delivery within 5 ms

    # Feeding.

    def left(self, now, source, port, destination, ecn, datagram):
        if source in self.addresses:
            self.leaves(now, source, port, destination, ecn, datagram)

    def arrived(self, now, source, port, destination, ecn, datagram):
        if destination in self.addresses:
            self.reaches(now, source, destination, ecn, datagram)

    def broken(self, clause, now, text):
        self.violations.append(f"{clause} at {now}: {text}")

    def check(self, holds, clause, now, text):
        self.counts[clause] += 1
        if not holds:
            self.broken(clause, now, text() if callable(text) else text)

    def leaves(self, now, source, port, destination, ecn, datagram):
        try:
            packet = decode(datagram, source, destination, self.port)
        except Malformed as error:
            self.broken("CONV-011", now, f"sends a malformed packet: {error} {datagram.hex()}")
            return
        if packet.name in REQUESTS and packet.psn in self.requests:
            first = self.requests[packet.psn][2]
            self.counts["repetitions"] += 1
            self.counts["repetitions with the timestamp of the first sending"] += packet.timestamp == first
        self.log.append((now, ">", source, port, destination, ecn, packet))
        self.left_times.append(now)
        data = wire.is_data(packet.opcode)
        self.check(data or not packet.flags & (wire.AR | wire.RTX | wire.SE), "PKT-004", now, lambda: f"{packet.flags:02x}: {packet}")
        self.check(packet.name in ("ACK", "ACK_SACK") or not packet.flags & wire.RTXE, "PKT-005", now,
                   lambda: f"{packet.flags:02x}: {packet}")
        if self.peer is not None and packet.name not in ("OPEN", "CONFIRM"):
            self.check(packet.dcid == self.peer["scid"], "PKT-011/022", now, lambda: f"DCID {packet.dcid}: {packet}")
        if packet.name == "NAK":
            self.check(packet.psn == 0, "PKT-016", now, lambda: f"{packet}")
        self.check(ecn == (2 if data else 0), "ECN-001/002", now, lambda: f"ECN {ecn} on {packet}")
        if packet.name in ("ACK", "ACK_SACK", "PATH_PROBE_ACK", "RATE_HINT") and self.own:
            self.own_hint_sent(packet, now)
        if packet.name in ("ACK", "ACK_SACK"):
            delivery = self.stamp_delivery.get((packet.path, packet.epoch, packet.timestamp_echo))
            if delivery is not None:   # each own address has a socket, and each socket an order of its own
                number, address = delivery
                self.processed[address] = max(self.processed[address], number)
        getattr(self, "leaves_" + packet.name.lower(), self.leaves_other)(packet, now, port)
        if data:
            path = self.out.get(packet.path)
            new = path is not None and packet.psn not in path.sent
            self.leaves_data(packet, now, port)
            if self.hints_given:
                self.check_hint(packet, now, new, len(datagram))
        request = packet.name in REQUESTS and not (packet.name == "RQ_CREDIT" and packet.kind == wire.TELL)
        if request:
            self.leaves_request(packet, now)

    def leaves_other(self, packet, now, port):
        pass

    def reaches(self, now, source, destination, ecn, datagram):
        self.deliveries += 1
        try:
            packet = decode(datagram, source, destination, self.port)
        except Malformed:
            return
        self.log.append((now, "<", source, None, destination, ecn, packet))
        self.delivered_to = destination
        getattr(self, "reaches_" + packet.name.lower(), self.reaches_other)(packet, now)
        if wire.is_data(packet.opcode):
            self.reaches_data(packet, now, ecn)
            self.stamp_delivery.setdefault((packet.path, packet.epoch, packet.timestamp), (self.deliveries, destination))
        if packet.name in ("ACK", "ACK_SACK"):
            self.take_limit(packet, now)
        if self.hints_given and packet.name in ("ACK", "ACK_SACK", "PATH_PROBE_ACK", "RATE_HINT"):
            self.take_hint(packet, now)

    # Rate hints.

    def take_hint(self, packet, now):
        """A hint that was delivered. Those that come late by their timestamp are passed over."""
        if self.hint_stamp is None or ahead(packet.timestamp, self.hint_stamp) >= 0:
            self.hint_stamp = packet.timestamp
            self.hints.append((now, packet.rate_hint))

    def hint_in_force(self, start, end):
        """The largest hint that can have been in force between two times, given that the endpoint may be late."""
        rates, last = [], None
        for when, rate in self.hints:
            if when <= start - 20 * MS:
                last = rate
            elif when <= end:
                rates.append(rate)
        if last is None:
            return wire.NO_LIMIT
        newest = max(w for w, _ in self.hints if w <= end)
        if end - newest > 12 * MS:   # it may have lapsed
            return wire.NO_LIMIT
        return max(rates + [last])

    def check_hint(self, packet, now, new, size):
        size += 28 if ":" not in next(iter(self.addresses)) else 48
        self.spent.append((now, size))
        while self.spent and now - self.spent[0][0] > 300 * MS:
            self.spent.popleft()
        if not new or not self.hints:
            return
        rate = self.hint_in_force(now, now)
        self.check(rate != 0, "HINT-011", now, lambda: f"new data while paused: {packet}")
        allowance = 16 * (self.agreed["payload_size"] + 80)
        used = 0
        for when, spent in reversed(self.spent):
            used += spent
            rate = self.hint_in_force(when, now)
            if rate == wire.NO_LIMIT:
                break
            allowed = (now - when + 20 * MS) * rate / 8000 + allowance
            self.check(used <= allowed, "HINT-008", now,
                       lambda: f"{used} bytes in {(now - when) / MS:.1f} ms at {rate} Mb/s: {packet}")

    def own_hint_sent(self, packet, now):
        """Numbers and limits of the hints that the endpoint gives (HINT-002, HINT-004)."""
        if not self.own["hint_support"]:
            self.check((packet.hint_epoch, packet.rate_hint) == (0, wire.NO_LIMIT), "PKT-012/024", now, lambda: f"{packet}")
            return
        if packet.rate_hint != wire.NO_LIMIT and self.capacity:
            self.check(packet.rate_hint <= 0.95 * self.capacity, "HINT-004", now, lambda: f"capacity {self.capacity}: {packet}")
        before = self.own_hint
        if before is not None and ahead(packet.timestamp, before[0]) >= 0:
            changed = packet.rate_hint != before[2]
            step = (packet.hint_epoch - before[1]) & 255
            self.check((step > 0) == changed if step <= 1 else changed or step % 2 == 0 or not self.exact, "HINT-002", now,
                       lambda: f"epoch {before[1]} with {before[2]} before: {packet}")
        if before is None or ahead(packet.timestamp, before[0]) >= 0:
            self.own_hint = (packet.timestamp, packet.hint_epoch, packet.rate_hint)

    def reaches_other(self, packet, now):
        pass

    # Set-up and control.

    def reaches_accept(self, packet, now):
        pass

    def leaves_confirm(self, packet, now, port):
        self.set_up(packet.params, packet.accepted, packet.accepted)

    def reaches_confirm(self, packet, now):
        self.set_up(packet.accepted, packet.params, packet.accepted)

    def set_up(self, own, peer, agreed):
        if self.own is None or self.own["scid"] != own["scid"]:
            self.own, self.peer, self.agreed = own, peer, agreed
            self.out = {n: PathOut(own["isn"]) for n in range(agreed["paths"])}
            self.into = {n: PathIn(peer["isn"]) for n in range(agreed["paths"])}

    def has(self, feature):
        return bool(self.agreed["features"] & wire.FEATURES[feature])

    def leaves_request(self, packet, now):
        key = packet.psn
        body = {k: v for k, v in packet.__dict__.items() if k not in ("timestamp",)}
        known = self.requests.get(key)
        if known is None:
            self.requests[key] = [body, [now], packet.timestamp]
            if self.txids:
                self.check(ahead(key, self.txids[-1]) > 0, "CONN-014", now, f"transaction {key} after {self.txids[-1]}")
            self.txids.append(key)
            return
        times = known[1]
        self.check(known[0] == body, "CONN-022", now, lambda: f"another body: {packet}")
        # From the first sending on, since repetitions are seen as late as this process is.
        pause, least = now - times[0], 50 * MS * ((1 << len(times)) - 1)
        self.check(pause >= least - self.jitter(), "CONN-023", now,
                   lambda: f"{packet} {pause / MS:.3f} ms after its first sending, {least / MS:.3f} due")
        times.append(now)
        self.check(len(times) <= 8, "CONN-024", now, lambda: f"{packet} for the {len(times)}th time")

    def jitter(self):
        return 0 if self.exact else 10 * MS if self.own else 40 * MS   # before set-up there is no clock of the peer

    def leaves_close(self, packet, now, port):
        self.closed_sent = True

    def leaves_stream_reset(self, packet, now, port):
        self.reset.add(packet.stream)

    def leaves_stream_reset_ack(self, packet, now, port):
        self.reset.add(packet.stream)

    def reaches_stream_reset(self, packet, now):
        self.reset.add(packet.stream)

    def leaves_stream_open(self, packet, now, port):
        self.open_stream(packet)
        self.tell_limit(packet, now)

    def reaches_stream_open(self, packet, now):
        self.open_stream(packet)
        self.take_limit(packet, now)

    def reaches_stream_open_ack(self, packet, now):
        if packet.status == 0:
            self.take_limit(packet, now)

    def leaves_stream_open_ack(self, packet, now, port):
        if packet.status == 0:
            self.tell_limit(packet, now)

    def open_stream(self, packet):
        self.streams.setdefault(packet.stream, {"first_msn": packet.first_msn, "next_msn": packet.first_msn,
                                                "next_rqsn": packet.first_rqsn, "messages": {}})

    # Credit.

    def take_limit(self, packet, now):
        before = self.limits.get(packet.stream)
        if before is None or ahead(packet.rq_limit, before, 16) > 0:
            self.limits[packet.stream] = packet.rq_limit

    def reaches_rq_credit(self, packet, now):
        if packet.kind == wire.TELL:
            self.take_limit(packet, now)

    def leaves_rq_credit(self, packet, now, port):
        if packet.kind == wire.TELL:
            self.tell_limit(packet, now)

    def tell_limit(self, packet, now):
        if packet.stream not in self.streams:
            return
        before = self.told_limits.get(packet.stream)
        if before is not None:
            self.check(ahead(packet.rq_limit, before, 16) >= 0, "STRM-031", now,
                       lambda: f"RqLimit {packet.rq_limit} of stream {packet.stream} after {before}")
        if before is None or ahead(packet.rq_limit, before, 16) > 0:
            self.told_limits[packet.stream] = packet.rq_limit

    # Data that leave.

    def leaves_data(self, packet, now, port):
        path = self.out.get(packet.path)
        if path is None:
            self.broken("PATH-001", now, f"no such path: {packet}")
            return
        if packet.epoch != path.epoch:
            if path.retired_cum is not None and packet.epoch == (path.epoch + 1) & 15 and path.probed_epoch == packet.epoch:
                self.start_epoch(path)
            else:
                self.broken("PATH-001/036", now, f"epoch {packet.epoch}, current {path.epoch}: {packet}")
                return
        self.check(not path.retiring, "PATH-024", now, lambda: f"data after PATH_RETIRE: {packet}")
        last = self.last_stamp.get(packet.path)
        if last is not None and now - last[1] < (1 << 30) * self.own["ts_unit"]:
            self.check(ahead(packet.timestamp, last[0]) >= 0, "PKT-017", now, lambda: f"timestamp goes back: {packet}")
        self.last_stamp[packet.path] = (packet.timestamp, now)
        self.check(ahead(packet.psn, path.cum) <= 256, "REL-003", now, lambda: f"beyond the window: {packet}")
        known = path.sent.get(packet.psn)
        path.order += 1
        path.stamps.setdefault(packet.timestamp, path.order)
        if known is None:
            self.new_packet(path, packet, now)
        else:
            self.retransmission(path, packet, known, now)
        path.last_data = now
        path.run_probe = None

    def new_packet(self, path, packet, now):
        self.check(packet.psn == path.next, "REL-002", now, lambda: f"PSN {path.next} is next: {packet}")
        self.check(not packet.flags & wire.RTX, "REL-029", now, lambda: f"RTX on a first transmission: {packet}")
        self.check(packet.name != "FILL", "ERR-013", now, lambda: f"a FILL that is new: {packet}")
        flight = sum(s.acked_at is None and s.orders[-1] > max(path.arrived_order, path.lost_before) and s.nak_order < 0
                     for s in path.sent.values())
        self.check(flight < path.window + 2 or not flight, "CC-001", now,
                   lambda: f"{flight} in flight, window {path.window} at most: {packet}")
        path.next = add(packet.psn, 1)
        path.sent[packet.psn] = SentPacket(packet, path.order, now)
        if not path.heard:
            path.new_before_report += 1
            self.check(path.new_before_report <= 16, "PATH-010", now, lambda: f"17 before a report: {packet}")
        if packet.name != "FILL":
            self.message_packet(packet, now)

    def retransmission(self, path, packet, known, now):
        who = f"{packet} first {known.times[0]} last {known.times[-1]}"
        self.check(packet.flags & wire.RTX, "REL-028", now, lambda: f"no RTX: {who}")
        if packet.name == "FILL":
            known.fill = True
            self.check(packet.stream in self.reset, "ERR-014", now, lambda: f"FILL without a reset: {who}")
            self.check(packet.stream == known.first.stream, "PKT-030", now, lambda: f"FILL of another stream: {who}")
        else:
            skip = ("timestamp", "flags")
            same = all(v == known.first.__dict__[k] for k, v in packet.__dict__.items() if k not in skip)
            self.check(same and (packet.flags ^ known.first.flags) & wire.SE == 0, "REL-027", now,
                       lambda: f"another content than {known.first}: {who}")
            self.check(not known.fill, "ERR-013", now, lambda: f"data after a FILL: {who}")
        surely = known.acked_at is not None and (
            self.exact or self.processed[known.acked_by] > known.acked_index or now - known.acked_at > 100 * MS)
        # An endpoint that was held up answers what came before the report first; one that has sent since was awake.
        awake = known.acked_at is not None and any(known.acked_at + self.certain < t < now - 2 * MS for t in self.left_times)
        if awake and not surely:
            self.suspect.append(f"REL-030 at {now}: reported at {known.acked_at}: {who}")
        self.check(not surely, "REL-030", now,
                   lambda: f"reported as arrived at {known.acked_at}, delivery {known.acked_index} of {dict(self.processed)} "
                           f"processed: {who}")
        self.check(len(known.times) < 64 + len(known.times) * (known.nak_order >= 0), "REL-052", now, lambda: who)
        # Evidence.
        last = known.orders[-1]
        quiet = now - max(path.last_data, path.last_report)
        evidence = (path.arrived_order > last or path.lost_before >= last or known.nak_order >= last
                    or quiet >= (10 if self.exact else 7) * MS or packet.name == "FILL")
        self.check(evidence, "REL-032/033", now,
                   lambda: f"no evidence (quiet for {quiet / MS:.3f} ms, order {last}, arrived {path.arrived_order}): {who}")
        if not (path.arrived_order > last or path.lost_before >= last or known.nak_order >= last) and evidence:
            path.lost_before = path.order - 1     # a timeout: all that was sent before is taken for lost
            if packet.name != "FILL":             # which goes at once for what a NAK has refused
                path.window = 1
        known.orders.append(path.order)
        known.times.append(now)
        known.stamps.append(packet.timestamp)

    def message_packet(self, packet, now):
        """Numbers and cuts of messages (chapter 4)."""
        stream = self.streams.get(packet.stream)
        if stream is None:
            self.broken("STRM-003", now, f"no such stream: {packet}")
            return
        size = len(getattr(packet, "payload", b""))
        payload_size = self.agreed["payload_size"]
        self.check(packet.offset % payload_size == 0 and (packet.mflags & wire.EOM or size == payload_size)
                   and size <= payload_size, "STRM-013/014", now, lambda: f"cut wrongly: {packet} of {size}")
        response = bool(packet.mflags & wire.RESP)
        key = (response, packet.msn)
        message = stream["messages"].get(key)
        identity = (packet.opcode, packet.rqsn, packet.len, getattr(packet, "va", None), getattr(packet, "rkey", None))
        if message is None:
            message = stream["messages"][key] = (identity, set())
            if not response:
                self.check(packet.msn == stream["next_msn"], "STRM-005/006", now,
                           lambda: f"MSN {stream['next_msn']} is next: {packet}")
                stream["next_msn"] = add(packet.msn, 1, 24)
                if packet.opcode in wire.CONSUMING:
                    self.check(packet.rqsn == stream["next_rqsn"], "STRM-007", now,
                               lambda: f"RQSN {stream['next_rqsn']} is next: {packet}")
                    stream["next_rqsn"] = add(packet.rqsn, 1, 16)
                self.check(not self.closed_sent, "CONN-027", now, lambda: f"begins after CLOSE: {packet}")
            self.check(packet.stream not in self.reset or not self.exact, "ERR-009", now,
                       lambda: f"begins after a reset: {packet}")
        self.check(message[0] == identity, "STRM-009", now, lambda: f"{message[0]} before: {packet}")
        message[1].add(packet.offset)
        if packet.opcode in wire.CONSUMING:
            limit = self.limits.get(packet.stream)
            self.check(limit is not None and ahead(limit, packet.rqsn, 16) > 0, "STRM-010", now,
                       lambda: f"limit {limit}: {packet}")

    # Reports that reach it.

    def reaches_ack(self, packet, now):
        self.report(packet, packet.psn, 0, now, packet.timestamp_echo)

    def reaches_ack_sack(self, packet, now):
        self.report(packet, packet.psn, vector_bits(packet.sack), now, packet.timestamp_echo)

    def report(self, packet, cum, bits, now, echo):
        path = self.out.get(packet.path)
        if path is None or packet.epoch != path.epoch or \
                ahead(add(cum, bits.bit_length()), add(path.next, -1)) > 0:
            return None
        path.heard = True
        path.last_report = now
        path.run_probe = None
        trigger = path.stamps.get(echo) if echo is not None else None
        arrived = path.arrived_order if trigger is None else max(path.arrived_order, trigger)
        for psn, sent in path.sent.items():
            if sent.acked_at is None and reported(cum, bits, psn):
                path.window = min(256, path.window + 1)
                sent.acked_at, sent.acked_index, sent.acked_by = now, self.deliveries, self.delivered_to
                arrived = max(arrived, sent.orders[0])
        path.arrived_order = arrived
        if ahead(cum, path.cum) > 0:
            path.cum = cum
            for psn in [p for p in path.sent if ahead(p, cum) < -600]:
                del path.sent[psn]
        return path

    def leaves_path_probe(self, packet, now, port):
        path = self.out.get(packet.path)
        if path is None:
            self.broken("PATH-001", now, f"{packet}")
            return
        if packet.epoch == path.epoch:
            self.check(packet.highest_psn == add(path.next, -1), "REL-036", now,
                       lambda: f"highest is {add(path.next, -1)}: {packet}")
        else:
            self.check(packet.epoch == (path.epoch + 1) & 15 and path.retired_cum is not None, "PATH-043", now,
                       lambda: f"probe of epoch {packet.epoch}: {packet}")
        path.probes[packet.psn] = (path.order, now, packet.epoch)

    def reaches_path_probe_ack(self, packet, now):
        path = self.out.get(packet.path)
        if path is None:
            return
        probe = path.probes.get(packet.psn)
        if probe is None or probe[2] != packet.epoch:
            return
        if packet.epoch == path.epoch:
            if packet.psn in path.answered:
                self.counts["further answers to one probe"] += 1
                return   # CONN-043 has them ignored, REL-051 does not
            path.answered.add(packet.psn)
            if self.report(packet, packet.cum_psn, vector_bits(packet.sack), now, None) is not None:
                path.lost_before = max(path.lost_before, probe[0])
        else:
            path.probed_epoch = packet.epoch

    def leaves_path_retire(self, packet, now, port):
        path = self.out[packet.path]
        if packet.epoch != path.epoch and path.probed_epoch == packet.epoch:
            self.start_epoch(path)
        self.check(packet.highest_psn == add(path.next, -1), "PATH-023", now, lambda: f"highest {add(path.next, -1)}: {packet}")
        path.retiring = True

    def reaches_path_retired(self, packet, now):
        path = self.out[packet.path]
        if packet.epoch == path.epoch and path.retiring and path.retired_cum is None:
            path.retired_cum = packet.cum_psn

    def start_epoch(self, path):
        first = add(path.retired_cum, 257)
        epoch = (path.epoch + 1) & 15
        path.__init__(first)
        path.epoch, path.heard = epoch, True

    def reaches_nak(self, packet, now):
        path = self.out.get(packet.path)
        if path is not None and packet.code == wire.RNR and path.epoch == packet.epoch:
            sent = path.sent.get(packet.offending_psn)
            if sent is not None:
                sent.nak_order = sent.orders[-1]

    # Data that reach it, and its acknowledgments.

    def reaches_data(self, packet, now, ecn):
        path = self.into.get(packet.path)
        if path is None or packet.epoch != path.epoch:
            return
        path.stamps.setdefault(packet.timestamp, []).append((packet.flags & wire.RTX, packet.stream))
        if ahead(packet.psn, path.cum) > 256:
            return
        if ahead(packet.psn, path.cum) <= 0 or packet.psn in path.got:
            path.duplicates += 1
        if ahead(packet.psn, path.cum) > 0:   # one that was refused can still arrive
            path.got.add(packet.psn)
            if ecn:
                path.marks[CE if ecn == CE else ECT0].add(packet.psn)

    def leaves_ack(self, packet, now, port):
        self.own_report(packet, packet.psn, 0, now)
        self.own_ack(packet, now)

    def leaves_ack_sack(self, packet, now, port):
        self.own_report(packet, packet.psn, vector_bits(packet.sack), now)
        self.own_ack(packet, now)

    def own_ack(self, packet, now):
        path = self.into.get(packet.path)
        if path is None or packet.epoch != path.epoch:
            return
        self.check(packet.ack_flags & wire.ECHO_VALID, "PKT-026", now, lambda: f"{packet}")
        known = path.stamps.get(packet.timestamp_echo)
        self.check(known is not None, "REL-022", now, lambda: f"echo of what never came: {packet}")
        if known is not None:
            self.check(any(bool(r) == bool(packet.flags & wire.RTXE) and s == packet.stream for r, s in known),
                       "REL-024/025", now, lambda: f"trigger {known}: {packet}")
        self.check(path.ce_told <= packet.ce_count <= len(path.marks[CE]), "ECN-003/005/008", now,
                   lambda: f"CE {packet.ce_count}, at least {path.ce_told}, at most {len(path.marks[CE])}: {packet}")
        self.check(path.ect_told <= packet.ect_count <= len(path.marks[ECT0]), "ECN-004/005/008", now,
                   lambda: f"ECT {packet.ect_count}, at least {path.ect_told}, at most {len(path.marks[ECT0])}: {packet}")
        path.ce_told, path.ect_told = packet.ce_count, packet.ect_count
        if packet.ack_flags & wire.DUPLICATE_SEEN:
            self.check(path.duplicates > 0, "REL-021", now, lambda: f"no duplicate has come: {packet}")
        self.tell_limit(packet, now)

    def own_report(self, packet, cum, bits, now):
        path = self.into.get(packet.path)
        if path is None:
            self.broken("PATH-008", now, f"no such path: {packet}")
            return
        if packet.epoch != path.epoch:
            self.broken("PATH-029", now, f"epoch {path.epoch} is current: {packet}")
            return
        psn = add(path.cum, 1)
        while ahead(cum, psn) >= 0:
            self.check(psn in path.got, "REL-007", now, lambda p=psn: f"PSN {p} has not arrived: {packet}")
            path.got.discard(psn)
            path.cum = psn
            psn = add(psn, 1)
        told = {add(cum, 1 + i) for i in range(256) if bits >> i & 1}
        self.check(told <= path.got, "REL-008", now, lambda: f"{sorted(told - path.got)} have not arrived: {packet}")
        self.check(ahead(cum, path.cum_told) >= 0, "REL-009", now, lambda: f"CumPSN {path.cum_told} before: {packet}")
        missing = {p for p in path.bits_told if ahead(p, cum) > 0} - told
        self.check(not missing, "REL-010", now, lambda: f"{sorted(missing)} left out: {packet}")
        path.cum_told, path.bits_told = cum, told

    def leaves_path_probe_ack(self, packet, now, port):
        self.own_report(packet, packet.cum_psn, vector_bits(packet.sack), now)

    def leaves_path_retired(self, packet, now, port):
        path = self.into.get(packet.path)
        body = (packet.cum_psn, packet.sack)
        before = path.retired.get(packet.epoch)
        if packet.epoch == path.epoch:
            self.own_report(packet, packet.cum_psn, vector_bits(packet.sack), now)
            path.retired = {packet.epoch: body}
            path.epoch = (path.epoch + 1) & 15
            path.start(add(packet.cum_psn, 256))
        else:
            self.check(before == body, "PATH-027", now, lambda: f"{before} before: {packet}")
