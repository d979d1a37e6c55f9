"""Packets to bytes and back, with every check that a packet allows by itself (chapter 2, "malformed").

A packet is a `Packet` with one attribute per field, called as in the tables. Reserved fields are not kept: they are
zero. Parameters and planes of the handshake are dicts, the payload is `payload`.
"""

import struct

from . import wire
from .crc import trailer


class Malformed(Exception):
    """A packet that is to be dropped in silence: `kind` as in vectors/README.md, and where it is wrong."""

    def __init__(self, kind, layer=None, field=None, found=None, **more):
        super().__init__(f"{kind} {layer or ''} {field or ''} {found if found is not None else ''}".strip())
        self.kind, self.layer, self.field, self.found, self.more = kind, layer, field, found, more


class Packet:
    """Fields by name; those that are not given are 0 when the packet is encoded."""

    def __init__(self, opcode, **fields):
        self.opcode = opcode
        self.__dict__.update(fields)

    @property
    def name(self):
        known = wire.PACKETS.get(self.opcode)
        return known[0] if known else f"{self.opcode:02x}"

    def __repr__(self):
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items() if k not in ('opcode', 'payload'))})"


class Layout:
    """One table, compiled to a struct: neighbouring narrow fields share a word of 32 bits."""

    def __init__(self, name, fields):
        self.name = name
        self.fields = []  # (field, word, shift, mask); a mask of None stands for bytes
        format_, word, bits = ">", 0, 0
        group = []
        for field, width in fields:
            if width > 64:
                format_ += f"{width // 8}s"
                self.fields.append((field, word, 0, None))
                word += 1
                continue
            group.append((field, width))
            bits += width
            if bits in (32, 64):
                format_ += "I" if bits == 32 else "Q"
                shift = bits
                for member, member_width in group:
                    shift -= member_width
                    self.fields.append((member, word, shift, (1 << member_width) - 1))
                word, bits, group = word + 1, 0, []
        assert not group, name
        self.struct = struct.Struct(format_)
        self.length = self.struct.size
        self.words = word
        self.reserved = [f for f in self.fields if f[0].startswith("rsvd")]

    def decode(self, data, at, into):
        """Writes the fields into the dict `into`; refuses reserved bits that are set."""
        if len(data) - at < self.length:
            raise Malformed("truncated", self.name, offset=at, needed=self.length, available=len(data) - at)
        words = self.struct.unpack_from(data, at)
        for field, word, shift, mask in self.fields:
            into[field] = words[word] if mask is None else (words[word] >> shift) & mask
        return at + self.length

    def check_reserved(self, fields):
        for field, _, _, _ in self.reserved:
            found = fields.pop(field, 0)
            if found:
                raise Malformed("reserved_nonzero", self.name, field, found)

    def encode(self, fields):
        words = [0] * self.words
        get = fields.get
        for field, word, shift, mask in self.fields:
            if mask is None:
                words[word] = get(field, b"")
            else:
                words[word] |= (get(field, 0) & mask) << shift
        return self.struct.pack(*words)


LAYOUTS = {name: Layout(name, fields) for name, fields in wire.LAYOUTS.items()}


def encode_body(packet):
    """The packet without its trailer."""
    fields = packet.__dict__
    known = wire.PACKETS.get(packet.opcode)
    if known is None:
        return LAYOUTS["CBH"].encode(fields) + packet.bytes
    _, headers, has_payload = known
    payload = b""
    if has_payload:
        payload = fields.get("payload", b"")
        packet.pad = -sum(LAYOUTS[h].length for h in headers) - len(payload) & 3
    fields.setdefault("version", 1)
    body = LAYOUTS["CBH"].encode(fields)
    for header in headers:
        if header in ("OPEN", "ACCEPT", "CONFIRM"):
            nested = {f: LAYOUTS[wire.NESTED[f]].encode(fields[f]) for f in wire.NESTED if f in fields}
            body += LAYOUTS[header].encode({**fields, **nested})
        else:
            body += LAYOUTS[header].encode(fields)
    if has_payload:
        body += payload + bytes(packet.pad)
    return body


def encode(packet, source, destination, port):
    """The whole UDP payload of a packet between two addresses to the UDP port `port`."""
    body = encode_body(packet)
    return body + trailer(source, destination, port, body)


def decode(datagram, source, destination, port):
    """The packet in a UDP payload, or `Malformed`. The trailer is checked first."""
    if len(datagram) < 4:
        raise Malformed("truncated", "CRC", offset=0, needed=4, available=len(datagram))
    body = datagram[:-4]
    if 16 <= len(datagram) < 20:
        raise Malformed("truncated", "CRC", offset=16, needed=4, available=len(datagram) - 16)
    if trailer(source, destination, port, body) != datagram[-4:]:
        raise Malformed("bad_crc")
    return decode_body(body)


def decode_body(body):
    """The packet in the bytes before a trailer that was checked."""
    packet = Packet(0)
    fields = packet.__dict__
    base = LAYOUTS["CBH"]
    at = base.decode(body, 0, fields)
    opcode = fields["opcode"]
    name, headers, has_payload = wire.PACKETS.get(opcode, ("UNKNOWN", (), None))
    if fields["version"] != 1 and name not in ("OPEN", "REJECT"):
        raise Malformed("unknown_version", "CBH", "version", fields["version"])
    base.check_reserved(fields)
    if fields["flags"] & 0x0F:
        raise Malformed("reserved_flags", "CBH", "flags", fields["flags"])
    if has_payload is None:  # an opcode that this version does not define
        packet.bytes = body[at:]
        _check_padding(packet, body)
        return packet
    if not has_payload and fields["pad"]:
        raise Malformed("unexpected_pad", "CBH", "pad", fields["pad"])
    if opcode >= 0x60 and opcode not in wire.PATH_CONTROL:
        if fields["path"]:
            raise Malformed("path_nonzero", "CBH", "path", fields["path"])
        if fields["epoch"]:
            raise Malformed("epoch_nonzero", "CBH", "epoch", fields["epoch"])
    if name == "OPEN" and fields["dcid"]:
        raise Malformed("dcid_nonzero", "CBH", "dcid", fields["dcid"])
    start = {}
    for header in headers:
        start[header] = at
        layout = LAYOUTS[header]
        at = layout.decode(body, at, fields)
        layout.check_reserved(fields)
        _CHECKS.get(header, _no_check)(packet)
    if has_payload:
        _payload(packet, body, at)
    elif len(body) > at:
        raise Malformed("overlong", headers[-1], offset=at, extra=len(body) - at)
    if wire.is_data(opcode):
        _check_message(packet, headers)
    if has_payload:
        _check_padding(packet, body)
    return packet


def _payload(packet, body, at):
    if len(body) & 3:
        raise Malformed("misaligned", "CBH", "pad", packet.pad)
    packet.payload = _cut_padding(packet, body, at)


def _cut_padding(packet, body, at):
    end = len(body) - packet.pad
    if end < at:
        raise Malformed("truncated", "pad", offset=at, needed=packet.pad, available=len(body) - at)
    return body[at:end]


def _check_padding(packet, body):
    pad = body[len(body) - packet.pad:] if packet.pad else b""
    if any(pad):
        raise Malformed("padding_nonzero", "pad", "pad", next(b for b in pad if b))


def _no_check(packet):
    pass


def _limit(layer, fields, field, low, high):
    if not low <= fields[field] <= high:
        raise Malformed("limit", layer, field, fields[field])


def _check_ack(packet):
    if packet.ack_flags & 0x1FFF:
        raise Malformed("reserved_flags", "ACK", "ack_flags", packet.ack_flags)


def _sack(layer):
    def check(packet):
        if packet.sack[0] & 0x80:
            raise Malformed("sack_bit_zero", layer, "sack", 1)
    return check


def _check_nak(packet):
    if packet.code == wire.UNKNOWN_CID and packet.dcid:
        raise Malformed("dcid_nonzero", "CBH", "dcid", packet.dcid)
    if packet.code != wire.UNKNOWN_CID and not packet.dcid:
        raise Malformed("dcid_zero", "CBH", "dcid", 0)


def _nested(packet):
    """Parameters and planes become dicts. Their values are judged by the acceptor, which answers them (CONN-034)."""
    for field, table in wire.NESTED.items():
        if field in packet.__dict__:
            fields = {}
            LAYOUTS[table].decode(packet.__dict__[field], 0, fields)
            LAYOUTS[table].check_reserved(fields)
            packet.__dict__[field] = fields
    if packet.name == "OPEN" and any(packet.padding):
        raise Malformed("padding_nonzero", "OPEN", "padding", next(b for b in packet.padding if b))


def _check_reject(packet):
    _limit("REJECT", packet.__dict__, "reason", 1, 255)


def _check_change(packet):
    _limit("PATH_CHANGE", packet.__dict__, "source_port", 1, 0xFFFF)
    _limit("PATH_CHANGE", packet.__dict__, "plane", 0, 7)


def _check_credit(packet):
    _limit("RQ_CREDIT", packet.__dict__, "kind", 0, 1)


def _check_reset(packet):
    if packet.code == 0 and packet.msn:
        raise Malformed("fixed_value", "STREAM_RESET", "msn", packet.msn)


_CHECKS = {
    "ACK": _check_ack, "ACK_SACK": _sack("ACK_SACK"), "PATH_PROBE_ACK": _sack("PATH_PROBE_ACK"),
    "PATH_RETIRED": _sack("PATH_RETIRED"), "NAK": _check_nak, "OPEN": _nested, "ACCEPT": _nested,
    "CONFIRM": _nested, "REJECT": _check_reject, "PATH_CHANGE": _check_change, "RQ_CREDIT": _check_credit,
    "STREAM_RESET": _check_reset,
}

_FLAGS = {"SEND_IMM": wire.IMM, "WRITE_IMM": wire.IMM, "SEND_INV": wire.INV, "READ_RESP": wire.RESP,
          "ATOMIC_RESP": wire.RESP}


def _check_message(packet, headers):
    """What the message header and the headers behind it may say in a packet of this opcode."""
    name = packet.name
    mflags, offset, length = packet.mflags, packet.offset, packet.len
    if mflags & 0x0B:
        raise Malformed("reserved_flags", "MSGH", "mflags", mflags)
    if mflags & (wire.IMM | wire.INV | wire.RESP) != _FLAGS.get(name, 0):
        raise Malformed("flag_not_allowed", "MSGH", "mflags", mflags)
    if length > wire.MAX_MESSAGE:
        raise Malformed("message_too_long", "MSGH", "len", length)
    if name == "FILL":
        for field in ("rqsn", "mflags", "msn", "offset", "len"):
            if getattr(packet, field):
                kind = "rqsn_nonzero" if field == "rqsn" else "fixed_value"
                raise Malformed(kind, "MSGH", field, getattr(packet, field))
        return
    one_packet = "payload" not in packet.__dict__
    if one_packet:
        if offset:
            raise Malformed("fixed_value", "MSGH", "offset", offset)
        last = True
    else:
        size = len(packet.payload)
        if offset + size > length:
            raise Malformed("outside_message", "MSGH", "offset", offset)
        if size == 0 and length:
            raise Malformed("empty_payload", "MSGH", "len", length)
        last = offset + size == length
    if bool(mflags & wire.SOM) != (offset == 0):
        raise Malformed("wrong_som", "MSGH", "mflags", mflags)
    if bool(mflags & wire.EOM) != last:
        raise Malformed("wrong_eom", "MSGH", "mflags", mflags)
    if packet.opcode not in wire.CONSUMING and packet.rqsn:
        raise Malformed("rqsn_nonzero", "MSGH", "rqsn", packet.rqsn)
    if (packet.opcode in wire.ATOMICS or name == "ATOMIC_RESP") and length != 8:
        raise Malformed("fixed_value", "MSGH", "len", length)
    if "TAGH" in headers:
        if name != "WRITE_IMM" and packet.imm:
            raise Malformed("immediate_nonzero", "TAGH", "imm", packet.imm)
        if packet.opcode in wire.ATOMICS and packet.va & 7:
            raise Malformed("unaligned_address", "TAGH", "va", packet.va)
        if packet.va + length >= 1 << 64:
            raise Malformed("address_wraps", "TAGH", "va", packet.va)
    if name == "FETCH_ADD" and packet.compare:
        raise Malformed("fixed_value", "ATOMIC", "compare", packet.compare)
