"""Packets of the sequences: names, flags, and fields to bytes and back through check.py, which reads spec/tables."""

import re

import check

TABLES = check.read_tables()

SIDES = ("initiator", "acceptor")
SERVICE_PORT = 49200

AR, RTX, SE, RTXE = 0x80, 0x40, 0x20, 0x10
SOM, EOM, IMM, INV, RESP = 0x80, 0x40, 0x20, 0x10, 0x04
ECHO_VALID, DUPLICATE_SEEN, OUT_OF_WINDOW_SEEN = 0x8000, 0x4000, 0x2000
NO_HINT = 0xFFFFFF

OPCODE = {name: int(table["opcode"], 16) for name, table in TABLES.items() if table["opcode"]}
NAME = {code: name for name, code in OPCODE.items()}
DATA = {name for name, code in OPCODE.items() if code < 0x40}
ACKS = {"ACK", "ACK_SACK"}
CONTROL = {name for name, code in OPCODE.items() if 0x60 <= code < 0x80}
TAGGED = {"WRITE", "WRITE_IMM", "READ_REQ", "CMP_SWAP", "FETCH_ADD"}
PAYLOAD = {"SEND", "SEND_IMM", "SEND_INV", "WRITE", "WRITE_IMM", "READ_RESP"}
RECEIVES = {"SEND", "SEND_IMM", "SEND_INV", "WRITE_IMM"}
# Control that names a path in the base header.
PATH_CONTROL = {"PATH_PROBE", "PATH_PROBE_ACK", "PATH_CHANGE", "PATH_RETIRE", "PATH_RETIRED"}


def other(side):
    return SIDES[1 - SIDES.index(side)]


def wide(value):
    """A number of 64 bits in the form of the files."""
    return f"{value:#018x}"


def vector(offsets):
    """The 256 bits of an acknowledgment in which these are set."""
    value = 0
    for bit in offsets:
        value |= 1 << 255 - bit
    return f"{value:064x}"


def bits(vector_hex):
    """The offsets that are set in a vector."""
    value = int(vector_hex, 16)
    return [bit for bit in range(256) if value >> 255 - bit & 1]


def blank(name):
    """The fields of a packet, all zero, version and opcode put in."""
    fields = {}
    for layer, inner in check.places(TABLES, name)[0].items():
        fields[layer] = {
            field: 0 if width <= 32 else wide(0) if width == 64 else "0" * (width // 4)
            for field, (_, width) in inner.items()
        }
    fields["CBH"].update(version=1, opcode=OPCODE[name])
    if name in PAYLOAD:
        fields["payload"] = {"payload": ""}
    return fields


def address(end, plane):
    """The address of an end in a plane."""
    return end["planes"][plane - 1] if plane else end["address"]


def pseudo(connection, side, plane, to_plane):
    """What the trailer covers of the addresses, for a packet from `side` out of one plane into one, which should be the same."""
    source, destination = connection[side], connection[other(side)]
    return {
        "source": address(source, plane),
        "destination": address(destination, to_plane),
        "destination_port": destination["port"],
    }


def encode(connection, side, fields, plane=0, to_plane=0):
    return check.encode(TABLES, NAME[fields["CBH"]["opcode"]], pseudo(connection, side, plane, to_plane), fields)


def decode(datagram):
    return check.decode(TABLES, NAME[datagram[1]], datagram)


def ahead(a, b, width=32):
    """How far serial number `a` is ahead of `b`; negative where it is behind."""
    half = 1 << width - 1
    return (a - b + half) % (1 << width) - half


def clauses():
    """The ids of all clauses, out of the chapters."""
    found = set()
    for path in sorted((check.TABLES.parent / "chapters").glob("*.md")):
        found |= set(re.findall(r"^#### ([A-Z]+-\d{3})$", path.read_text(), re.M))
    return found
