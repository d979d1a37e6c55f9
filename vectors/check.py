#!/usr/bin/env python3
"""Checks the golden packets against the wire tables, without any code of the Rust crates.

    python3 vectors/check.py            compares; exit code 1 and one line for each difference
    python3 vectors/check.py --write    fills in `datagram` from the fields and changes, then compares
    python3 vectors/check.py --seeds D  writes every datagram as a file of its own into the folder D

It reads the layouts from spec/tables, has its own CRC-32C, and needs the standard library alone. What it recomputes:
the bytes of a valid packet from its fields, the fields from the bytes, the bytes of an invalid packet from its base and
its changes, and every trailer.
"""

import ipaddress
import json
import pathlib
import re
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
TABLES = HERE.parent / "spec" / "tables"
TRAILER = 4


def crc_32c(data):
    """CRC-32C, reflected polynomial 82f63b78, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def mapped(address):
    """An address as 16 bytes; IPv4 as ::ffff:a.b.c.d."""
    address = ipaddress.ip_address(address)
    return address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed


def trailer(pseudo, body):
    """The four bytes that end the datagram whose other bytes are `body`."""
    head = mapped(pseudo["source"]) + mapped(pseudo["destination"])
    head += struct.pack(">HHI", pseudo["destination_port"], 0, len(body) + TRAILER + 8)
    return struct.pack(">I", crc_32c(head + body))


def read_tables():
    """The tables by name. Reads the plain form that the files are written in and refuses any other line."""
    tables = {}
    for path in sorted(TABLES.glob("*.yaml")):
        if path.name == "codes.yaml":
            continue
        table = {"opcode": None, "layout": [], "fields": []}
        for line in path.read_text().splitlines():
            if line.startswith("#") or line in ("fields:", "fields: []"):
                continue
            if pair := re.fullmatch(r"(name|opcode|length|layout): (.+)", line):
                key, value = pair.groups()
                table[key] = re.findall(r"\w+", value) if key == "layout" else value
            elif field := re.fullmatch(r"  - \{name: (\w+), offset: (\d+), width: (\d+), meaning: \"[^\"]*\"(.*)\}", line):
                name, offset, width, rest = field.groups()
                inner = re.search(r"table: (\w+)", rest)
                table["fields"].append((name, int(offset), int(width), inner and inner[1]))
            else:
                sys.exit(f"{path.name}: cannot read {line!r}")
        tables[table["name"]] = table
    return tables


def places(tables, packet):
    """Where the fields of a packet stand: {layer: {field: (bit offset, width)}}, and the bytes of all headers."""
    found, at = {}, 0
    layout = tables[packet]["layout"] if packet in tables else ["CBH"]
    for part in layout:
        if part not in tables:
            continue
        for name, offset, width, inner in tables[part]["fields"]:
            start = at * 8 + offset
            if inner:
                found[name] = {n: (start + o, w) for n, o, w, _ in tables[inner]["fields"]}
            else:
                found.setdefault(part, {})[name] = (start, width)
        at += int(tables[part]["length"])
    return found, at


def get(data, place):
    """The field at `place` in the form that the vectors use: see README.md."""
    offset, width = place
    value = int.from_bytes(data, "big") >> (len(data) * 8 - offset - width) & (1 << width) - 1
    if width <= 32:
        return value
    return f"{value:#018x}" if width == 64 else f"{value:0{width // 4}x}"


def put(data, place, value):
    """`data` with `value` written into the field at `place`."""
    offset, width = place
    if isinstance(value, str):
        value = int(value, 16)
    if value >> width:
        raise ValueError(f"{value:#x} does not fit into {width} bits")
    shift = len(data) * 8 - offset - width
    whole = int.from_bytes(data, "big") & ~((1 << width) - 1 << shift) | value << shift
    return whole.to_bytes(len(data), "big")


def tail(tables, packet):
    """Name of what follows the headers, if anything does: layer and field."""
    if packet not in tables:
        return "UNKNOWN", "bytes"
    return ("payload", "payload") if "payload" in tables[packet]["layout"] else None


def encode(tables, packet, pseudo, fields):
    """The datagram of these fields. Every field has to be given, and no other."""
    where, length = places(tables, packet)
    data = bytes(length)
    rest = dict(fields)
    for layer, inner in where.items():
        given = rest.pop(layer)
        if given.keys() != inner.keys():
            raise ValueError(f"{layer} has the fields {sorted(inner)}")
        for name, place in inner.items():
            data = put(data, place, given[name])
    if name := tail(tables, packet):
        data += bytes.fromhex(rest.pop(name[0])[name[1]])
        if name[0] == "payload":
            data += bytes(fields["CBH"]["pad"])
    if rest:
        raise ValueError(f"no such layer: {sorted(rest)}")
    return data + trailer(pseudo, data)


def decode(tables, packet, datagram):
    """The fields of a datagram that is right."""
    where, length = places(tables, packet)
    fields = {layer: {n: get(datagram, p) for n, p in inner.items()} for layer, inner in where.items()}
    if name := tail(tables, packet):
        pad = fields["CBH"]["pad"] if name[0] == "payload" else 0
        fields[name[0]] = {name[1]: datagram[length : len(datagram) - TRAILER - pad].hex()}
    return fields


def change(tables, packet, pseudo, datagram, steps):
    """A datagram with faults put in one after the other; the trailer is made right again unless a step is about it."""
    where, _ = places(tables, packet)
    body, sealed, flip = datagram[:-TRAILER], True, 0
    for step in steps:
        (kind, what), = step.items()
        if kind == "set":
            body = put(body, where[what["layer"]][what["field"]], what["value"])
        elif kind == "bytes":
            new = bytes.fromhex(what["hex"])
            body = body[: what["at"]] + new + body[what["at"] + len(new) :]
        elif kind == "append":
            body += bytes.fromhex(what)
        elif kind == "length":
            body, sealed = body[: max(0, what - TRAILER)], what >= TRAILER
            if not sealed:
                body = datagram[:what]
        elif kind == "crc_xor":
            flip ^= int(what, 16)
        else:
            raise ValueError(f"no such change: {kind}")
    if not sealed:
        return body
    crc = int.from_bytes(trailer(pseudo, body), "big") ^ flip
    return body + struct.pack(">I", crc)


def expected(tables, packet, vector, by_id):
    """The datagram that the definition of a vector gives."""
    pseudo = vector["pseudo_header"]
    if "valid" in vector:
        return encode(tables, packet, pseudo, vector["valid"]["fields"])
    base = by_id[vector["invalid"]["base"]]
    base_bytes = encode(tables, packet, base["pseudo_header"], base["valid"]["fields"])
    return change(tables, packet, pseudo, base_bytes, vector["invalid"]["change"])


def differences(tables, packet, vector, by_id):
    """What does not hold of one vector, in words."""
    datagram = bytes.fromhex(vector["datagram"])
    wanted = expected(tables, packet, vector, by_id)
    if datagram != wanted:
        yield f"datagram should be {wanted.hex()}"
    if "valid" in vector and decode(tables, packet, datagram) != vector["valid"]["fields"]:
        yield "the bytes decode to other fields"
    error = vector.get("invalid", {}).get("error", {})
    # Of padding and vectors the error names one byte or bit.
    if error.get("kind") not in ("padding_nonzero", "sack_bit_zero"):
        place = places(tables, packet)[0].get(error.get("layer"), {}).get(error.get("field"))
        if place and get(datagram, place) != error["found"]:
            yield f"{error['layer']}.{error['field']} is {get(datagram, place)}"
    if len(datagram) >= TRAILER:
        right = datagram[-TRAILER:] == trailer(vector["pseudo_header"], datagram[:-TRAILER])
        wrong_on_purpose = "invalid" in vector and vector["invalid"]["error"]["kind"] == "bad_crc"
        if right == wrong_on_purpose:
            yield "the trailer is " + ("right" if right else "wrong")


def main(arguments):
    known = {"--write", "--seeds"}
    folder = arguments[arguments.index("--seeds") + 1 :][:1] if "--seeds" in arguments else []
    if unknown := [a for a in arguments if a not in known and a not in folder]:
        sys.exit(f"no such argument: {unknown[0]}")
    if crc_32c(b"123456789") != 0xE3069283:
        sys.exit("the CRC is not CRC-32C")
    tables = read_tables()
    files = sorted((HERE / "packets").glob("*.json"))
    count, faults = 0, 0
    for path in files:
        content = json.loads(path.read_text())
        packet, vectors = content["packet"], content["vectors"]
        by_id = {vector["id"]: vector for vector in vectors}
        if "--write" in arguments:
            for vector in vectors:
                vector["datagram"] = expected(tables, packet, vector, by_id).hex()
            path.write_text(json.dumps(content, indent=2) + "\n")
        for vector in vectors:
            count += 1
            for fault in differences(tables, packet, vector, by_id):
                faults += 1
                print(f"{path.name}: {vector['id']}: {fault}")
            if "--seeds" in arguments:
                folder = pathlib.Path(arguments[arguments.index("--seeds") + 1])
                folder.mkdir(parents=True, exist_ok=True)
                (folder / vector["id"]).write_bytes(bytes.fromhex(vector["datagram"]))
    print(f"{count} vectors in {len(files)} files, {faults} differences")
    sys.exit(1 if faults or not count else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
