"""The requests of the adapter protocol: which names each has, and what values they may hold."""

U8, U16, U32, U64 = 0xFF, 0xFFFF, 0xFFFF_FFFF, (1 << 64) - 1


class BadRequest(Exception):
    """`code` as in the schema of the adapter protocol."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def number(low, high):
    def check(value):
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"a number from {low} to {high}")
        return value
    return check


def boolean(value):
    if type(value) is not bool:
        raise ValueError("true or false")
    return value


def text(value):
    if type(value) is not str:
        raise ValueError("a string")
    return value


def hexadecimal(value):
    try:
        data = bytes.fromhex(text(value))
    except ValueError:
        raise ValueError("hex digits") from None
    if len(data) * 2 != len(value):
        raise ValueError("hex digits")
    return data


def operand(value):
    if not text(value).startswith("0x") or not 3 <= len(value) <= 18:
        raise ValueError("0x and up to 16 hex digits")
    try:
        return int(value[2:], 16)
    except ValueError:
        raise ValueError("0x and up to 16 hex digits") from None


def address(value):
    """(IP address, port) of 'ip:port'."""
    import ipaddress
    host, _, port = text(value).rpartition(":")
    try:
        ip = ipaddress.ip_address(host[1:-1] if host.startswith("[") else host)
        if not 0 < int(port) <= U16:
            raise ValueError
    except ValueError:
        raise ValueError("an address 'ip:port'") from None
    return str(ip), int(port)


def ip(value):
    import ipaddress
    return str(ipaddress.ip_address(text(value)))


def one_of(*values):
    def check(value):
        if value not in values:
            raise ValueError("one of " + ", ".join(map(str, values)))
        return value
    return check


def several(check):
    def all_of(value):
        if type(value) is not list or len({str(v) for v in value}) != len(value):
            raise ValueError("a list without repetitions")
        return [check(v) for v in value]
    return all_of


OPEN_NEEDED = {"role": one_of("initiator", "acceptor"), "local": address, "peer": address,
               "service_id": number(0, U32), "paths": number(1, 256), "streams": number(1, 16384),
               "payload_size": one_of(256, 512, 1024, 2048, 4096, 8192), "msg_window": number(1, 32767),
               "source_port_base": number(1, U16), "seed": number(0, U64), "ack_delay_us": number(0, U16)}
OPEN_FURTHER = {"features": several(one_of("imm", "inv", "reset", "retire", "change")), "read_depth": number(0, U8),
                "atomic_depth": number(0, U8), "planes": several(ip), "first_streams": number(0, 16384),
                "source_ports": number(1, U16), "capacity_mbps": number(1, 16777214),
                "hint_interval_us": number(10, 10000), "rnr_retries": number(0, 7), "srq": boolean,
                "spray_run": number(1, 16), "domain": number(0, U32)}
CONN = {"conn": number(0, U32)}
STREAM = {**CONN, "stream": number(0, U16)}
PIECE = {"mr": number(0, U32), "offset": number(0, U64), "len": number(0, U64)}
WORK = {**STREAM, "wr_id": number(0, U64)}
FLAGS = {"signalled": boolean, "fence": boolean}
REMOTE = {"va": operand, "rkey": number(0, U32)}
RECV = {"wr_id": number(0, U64), **PIECE}

# Operation: names that it needs, names that it may have.
REQUESTS = {
    "hello": ({"protocol": number(0, U32)}, {}),
    "capabilities": ({}, {}),
    "open": (OPEN_NEEDED, {"initial_psn": number(0, U32), **OPEN_FURTHER}),
    "register": ({"len": number(0, U64), "fill": number(0, U8), "remote_write": boolean},
                 {"remote_read": boolean, "remote_atomic": boolean, "invalidate": boolean, "domain": number(0, U32)}),
    "write_memory": ({"mr": number(0, U32), "offset": number(0, U64), "hex": hexadecimal}, {}),
    "read_memory": (PIECE, {}),
    "digest": (PIECE, {}),
    "deregister": ({"mr": number(0, U32)}, {}),
    "post_recv": ({**STREAM, **RECV}, {}),
    "post_srq_recv": (RECV, {}),
    "withdraw_recv": (WORK, {}),
    "withdraw_srq_recv": ({"wr_id": number(0, U64)}, {}),
    "post_send": (WORK, {**PIECE, "inline": hexadecimal, "imm": number(0, U32), "invalidate": number(0, U32),
                         **FLAGS, "solicited": boolean}),
    "post_write": ({**WORK, **REMOTE}, {**PIECE, "inline": hexadecimal, "imm": number(0, U32), **FLAGS,
                                        "solicited": boolean}),
    "post_read": ({**WORK, **PIECE, **REMOTE}, FLAGS),
    "post_cmp_swap": ({**WORK, **PIECE, **REMOTE, "compare": operand, "swap": operand}, FLAGS),
    "post_fetch_add": ({**WORK, **PIECE, **REMOTE, "add": operand}, FLAGS),
    "open_stream": (CONN, {"domain": number(0, U32)}),
    "reset_stream": (STREAM, {}),
    "move_path": ({**CONN, "path": number(0, U16)}, {"port": number(0, U16), "plane": number(0, U8)}),
    "retire_path": ({**CONN, "path": number(0, U16)}, {}),
    "set_plane": ({**CONN, "plane": number(0, U8), "up": boolean}, {}),
    "set_capacity": ({"mbps": number(1, 16777214)}, {}),
    "stats": (CONN, {"path": number(0, U16), "stream": number(0, U16)}),
    "poll": ({"timeout_ms": number(0, 600000)}, {}),
    "counters": (CONN, {}),
    "close": (CONN, {}),
    "abort": (CONN, {}),
    "reset": ({}, {}),
}


def check(request):
    """The arguments of a request as values, without `id` and `op`."""
    op = request.get("op")
    if type(op) is not str:
        raise BadRequest("bad_request", "op is missing")
    if op not in REQUESTS:
        raise BadRequest("unknown_op", f"no operation {op}")
    needed, further = REQUESTS[op]
    out = {}
    for name, value in request.items():
        if name in ("id", "op"):
            continue
        rule = needed.get(name) or further.get(name)
        if rule is None:
            raise BadRequest("bad_request", f"{op} has no {name}")
        try:
            out[name] = rule(value)
        except (ValueError, TypeError) as error:
            raise BadRequest("bad_request", f"{name}: {error}") from None
    missing = [n for n in needed if n not in out]
    if missing:
        raise BadRequest("bad_request", f"{op} needs {missing[0]}")
    if op in ("post_send", "post_write"):
        pieces = [n in out for n in ("mr", "offset", "len")]
        if "inline" in out and any(pieces) or "inline" not in out and not all(pieces) \
                or op == "post_send" and "imm" in out and "invalidate" in out:
            raise BadRequest("bad_request", "either inline or mr, offset and len; imm or invalidate")
    return op, out
