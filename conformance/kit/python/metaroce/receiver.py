"""Data packets that arrive: checks, placement, completion of messages (chapters 8, 9, 10 and 14)."""

from . import wire
from .codec import Packet
from .recvpath import CE
from .serial import add, ahead
from .work import Inbound, Response

OPS = wire.OPCODE
SUCCESS, FLUSHED = "IBV_WC_SUCCESS", "IBV_WC_WR_FLUSH_ERR"


class Receiver:
    def on_data(self, packet, plane, ecn, now, size):
        """A data packet, checked in the order of the table of chapter 14."""
        if packet.path >= len(self.recv_paths):
            self.counters["silence"] += 1
            return
        path = self.recv_paths[packet.path]
        if packet.epoch != path.epoch:
            self.counters["silence"] += 1
            return
        self.hint_arrival(size, now)
        if ahead(packet.psn, path.cum) > 256:
            path.outside_seen = True
            self.counters["out_of_window"] += 1
            return
        if path.has(packet.psn):
            self.counters["duplicates"] += 1
            path.duplicate_seen = True
            path.port_turn += 1
            path.plane = plane
            path.trigger = (packet.timestamp, now, packet.flags & wire.RTX, packet.stream)
            path.arrived(now, True, self.own_ack_delay)
            return
        if packet.opcode == OPS["FILL"]:
            if self.agreed("reset"):
                self.arrive(path, packet, plane, ecn, now)
            else:
                self.counters["silence"] += 1
            return
        stream = self.streams.get(packet.stream)
        if stream is not None and stream.state == "reset":
            self.arrive(path, packet, plane, ecn, now)
            return
        if stream is None or stream.state not in ("open", "opening"):
            self.counters["silence"] += 1
            return
        response = packet.opcode in wire.RESPONSES
        if not response and self.peer_close is not None and packet.msn not in stream.inbound \
                and ahead(packet.msn, stream.low_msn, 24) >= 0:
            self.counters["silence"] += 1
            return
        refusal = stream.refusals.get((response, packet.msn))
        if refusal is not None:
            self.refuse_again(stream, refusal, packet, plane, now)   # ERR-003
            return
        code = self.take_response(stream, packet) if response else self.take_request(stream, packet, plane)
        if code is None:
            self.arrive(path, packet, plane, ecn, now)
            self.counters["bytes_received"] += len(getattr(packet, "payload", b""))
            self.deliver(stream)
        elif code == wire.RNR:
            self.refuse_not_ready(packet, plane)
        else:
            self.refuse(stream, response, code, packet, plane, now)

    def arrive(self, path, packet, plane, ecn, now):
        """A packet has arrived; decides when its acknowledgment is due (REL-014 to REL-019, REL-047, ECN-009)."""
        at_once = path.take(packet.psn, ecn)
        path.plane = plane
        path.trigger = (packet.timestamp, now, packet.flags & wire.RTX, packet.stream)
        path.packets += 1
        path.payload += len(getattr(packet, "payload", b""))
        at_once = at_once or packet.flags & wire.AR or packet.mflags & wire.EOM or path.packets >= 8 \
            or path.payload >= 16384
        path.arrived(now, at_once, self.own_ack_delay)

    # Requests.

    def take_request(self, stream, packet, plane):
        """Checks and places a packet of a request. Returns the code with which it is refused, or None."""
        opcode = packet.opcode
        if opcode in (OPS["SEND_IMM"], OPS["WRITE_IMM"]) and not self.agreed("imm") \
                or opcode == OPS["SEND_INV"] and not self.agreed("inv") \
                or opcode == OPS["READ_REQ"] and not self.own["read_depth"] \
                or opcode in wire.ATOMICS and not self.own["atomic_depth"]:
            return wire.REM_INV_REQ
        if not 0 <= ahead(packet.msn, stream.low_msn, 24) < self.msg_window:
            return wire.REM_INV_REQ   # MEM-011
        message = stream.inbound.get(packet.msn)
        if message is None:
            message = Inbound(packet, self.payload_size)
        elif message.whole or (message.opcode, message.rqsn, message.length) != (opcode, packet.rqsn, packet.len):
            return wire.REM_INV_REQ   # MEM-010
        if not self.cut_well(packet):
            return wire.REM_INV_REQ   # MEM-009
        code = self.place(stream, packet, message)
        if code is not None:
            return code
        stream.inbound[packet.msn] = message
        message.got += 1
        if packet.flags & wire.SE:
            message.solicited = True
        if opcode in (OPS["READ_REQ"],) + wire.ATOMICS:
            message.request, message.where = packet, plane
        while (inbound := stream.inbound.get(stream.low_msn)) is not None and inbound.whole:
            stream.low_msn = add(stream.low_msn, 1, 24)
        return None

    def cut_well(self, packet):
        """MEM-008: pieces of exactly P bytes at multiples of P, but the last."""
        if "payload" not in packet.__dict__:
            return True
        size = len(packet.payload)
        if packet.offset % self.payload_size or size > self.payload_size:
            return False
        return size == self.payload_size or bool(packet.mflags & wire.EOM)

    def place(self, stream, packet, message):
        """Finds the place of a packet and writes it. Returns the code with which it is refused, or None."""
        opcode = packet.opcode
        receive = None
        if opcode in wire.CONSUMING:
            code, receive = self.find_receive(stream, packet, message)
            if code is not None:
                return code
        if opcode in wire.SENDS:
            if packet.len > receive.length:
                self.bind(stream, message, receive, packet)
                message.receive = receive
                stream.inbound[packet.msn] = message
                return wire.LENGTH
            if opcode == OPS["SEND_INV"] and not message.got \
                    and not self.memory.may_invalidate(packet.rkey, stream.domain):
                return wire.REM_ACCESS
            if packet.len and not receive.region.registered:
                return wire.REM_OP   # the program has taken the memory of its receive away
            if packet.payload:
                at = receive.offset + packet.offset
                receive.region.data[at:at + len(packet.payload)] = packet.payload
        elif packet.len:
            right = {OPS["READ_REQ"]: "read", OPS["CMP_SWAP"]: "atomic", OPS["FETCH_ADD"]: "atomic"}.get(opcode, "write")
            region = self.memory.open_for(packet.rkey, packet.va, packet.len, right, stream.domain)
            if region is None:
                return wire.REM_ACCESS
            if opcode in wire.WRITES:
                at = packet.va - region.va + packet.offset
                region.data[at:at + len(packet.payload)] = packet.payload
        if opcode == OPS["READ_REQ"]:
            if self.reads_held >= self.own["read_depth"]:
                return wire.REM_INV_REQ   # OPS-014
            self.reads_held += 1
        elif opcode in wire.ATOMICS:
            if self.atomics_held >= self.own["atomic_depth"]:
                return wire.REM_INV_REQ   # OPS-025
            self.atomics_held += 1
        if receive is not None:
            self.bind(stream, message, receive, packet)
        if opcode in (OPS["SEND_IMM"], OPS["WRITE_IMM"]):
            message.imm = packet.imm
        elif opcode == OPS["SEND_INV"]:
            message.invalidate = packet.rkey
        return None

    def find_receive(self, stream, packet, message):
        """(code, receive) for a packet that consumes one (RCV-008, RCV-009)."""
        if message.receive is not None:
            return None, message.receive
        if stream.reported is None or ahead(packet.rqsn, stream.reported, 16) >= 0 \
                or ahead(packet.rqsn, stream.receive_base, 16) < 0:
            return wire.REM_INV_REQ, None
        if any(m.rqsn == packet.rqsn and m is not message for m in stream.inbound.values()
               if m.opcode in wire.CONSUMING):
            return wire.REM_INV_REQ, None
        if self.settings.srq:
            receive = self.srq[0] if self.srq else None
        else:
            receive = stream.receives.get(packet.rqsn)
        return (None, receive) if receive is not None else (wire.RNR, None)

    def bind(self, stream, message, receive, packet):
        """The first packet of a message takes its receive."""
        if message.receive is None:
            message.receive = receive
            receive.bound = True
            if self.settings.srq:
                self.srq.popleft()
                stream.bound += 1
            if ahead(packet.rqsn, stream.used_rqsn, 16) >= 0:
                stream.used_rqsn = add(packet.rqsn, 1, 16)
            self.credit_may_tell(stream)

    # Completion.

    def deliver(self, stream):
        """Completes messages in the order of their MSNs, and carries out Reads and atomics in their turn."""
        while stream.state == "open" and not stream.stopped:
            message = stream.inbound.get(stream.deliver_msn)
            if message is None:
                return
            if (False, message.msn) in stream.refusals:
                stream.stopped = True
                if stream.refusals[(False, message.msn)].code == wire.LENGTH and message.receive is not None:
                    self.consume(stream, message, "IBV_WC_LOC_LEN_ERR")
                return
            if not message.whole:
                return
            if message.request is not None:
                if not self.carry_out(stream, message):
                    return
            elif message.opcode in wire.CONSUMING:
                if message.invalidate is not None:
                    self.memory.invalidate(message.invalidate)
                self.consume(stream, message, SUCCESS)
            del stream.inbound[message.msn]
            stream.deliver_msn = add(message.msn, 1, 24)
            self.counters["messages_received"] += 1

    def consume(self, stream, message, status):
        """Reports the completion of the receive that a message has consumed."""
        receive = message.receive
        if self.settings.srq:
            stream.granted -= 1
            stream.bound -= 1
        else:
            del stream.receives[message.rqsn]
        stream.receive_base = add(message.rqsn, 1, 16)
        message.receive = None
        more = {}
        if status == SUCCESS:
            if message.imm is not None:
                more["imm"] = message.imm
            if message.invalidate is not None:
                more["invalidated"] = message.invalidate
            if message.solicited:
                more["solicited"] = True
        kind = "recv_write" if message.opcode == OPS["WRITE_IMM"] else "recv"
        self.complete(stream, receive, kind, status, message.length, **more)
        self.grant()

    def flush_receives(self, stream):
        """Gives back every receive of a stream that has ended, in the order in which they were posted (VERB-004)."""
        stream.stopped = True
        short = {id(m.receive): m for m in stream.inbound.values() if m.receive is not None
                 and (False, m.msn) in stream.refusals and stream.refusals[(False, m.msn)].code == wire.LENGTH}
        receives = list(stream.receives.values())
        if self.settings.srq:
            receives = [m.receive for m in stream.inbound.values() if m.receive is not None]
        for receive in receives:
            message = short.get(id(receive))
            status = "IBV_WC_LOC_LEN_ERR" if message else FLUSHED
            self.complete(stream, receive, "recv", status, message.length if message else 0)
        stream.receives.clear()
        for message in stream.inbound.values():
            if message.request is not None:
                self.request_done(message.opcode)
        for response in stream.responses:
            self.request_done(response.opcode)
        stream.inbound.clear()
        stream.granted = stream.bound = 0
        stream.refusals.clear()
        self.grant()

    # Reads and atomics at the responder.

    def carry_out(self, stream, message):
        """Takes the result of a Read or an atomic request, which is checked once more. Returns whether it could be."""
        packet = message.request
        result, original = b"", 0
        if packet.len:
            right = "read" if message.opcode == OPS["READ_REQ"] else "atomic"
            region = self.memory.open_for(packet.rkey, packet.va, packet.len, right, stream.domain)
            if region is None:
                self.request_done(message.opcode)
                message.request = None
                self.refuse(stream, False, wire.REM_ACCESS, packet, message.where, self.now)   # OPS-044, OPS-050
                stream.stopped = True
                return False
            at = packet.va - region.va
            if right == "read":
                result = bytes(memoryview(region.data)[at:at + packet.len])
            else:
                original = self.atomic(region.data, at, packet)
        opcode = OPS["READ_RESP"] if message.opcode == OPS["READ_REQ"] else OPS["ATOMIC_RESP"]
        response = Response(stream, opcode, packet.len, packet.msn, result, original)
        response.cut(self.payload_size)
        stream.responses.append(response)
        return True

    def atomic(self, data, at, packet):
        """The 8 bytes are a number in the byte order of the host, least significant byte first here."""
        original = int.from_bytes(data[at:at + 8], "little")
        value = original
        if packet.opcode == OPS["FETCH_ADD"]:
            value = (original + packet.swap_or_add) & 0xFFFF_FFFF_FFFF_FFFF
        elif original == packet.compare:
            value = packet.swap_or_add
        data[at:at + 8] = value.to_bytes(8, "little")
        return original

    def request_done(self, opcode):
        """A Read or an atomic request does not count for the depth any more."""
        if opcode in (OPS["READ_REQ"], OPS["READ_RESP"]):
            self.reads_held -= 1
        else:
            self.atomics_held -= 1

    def response_sent(self, response):
        """Every packet of a response has been sent once."""
        self.request_done(response.opcode)

    # Responses at the requester.

    def take_response(self, stream, packet):
        """Places a packet of a response. Returns the code with which it is refused, or None (OPS-022, OPS-023)."""
        work = self.waiting.get((stream.number, packet.msn))
        read = packet.opcode == OPS["READ_RESP"]
        if work is not None and read and work.kind == "read" and packet.len > work.length:
            work.failed_here = "IBV_WC_LOC_LEN_ERR"   # it is given when the stream ends
        if work is None or (work.kind == "read") != read or packet.len != work.length or not self.cut_well(packet):
            return wire.REM_INV_REQ
        region, offset = work.local
        if work.length and not region.registered:
            work.failed_here = "IBV_WC_LOC_PROT_ERR"
            return wire.REM_OP
        if read:
            at = offset + packet.offset
            region.data[at:at + len(packet.payload)] = packet.payload
            total = max(1, -(-work.length // self.payload_size))
        else:
            region.data[offset:offset + 8] = packet.original.to_bytes(8, "little")
            total = 1
        work.got += 1
        if work.got == total:
            self.response_complete(work)
        return None
