"""Layouts and code points, as in the tables of chapter 2. Widths are in bits."""

CBH = (("version", 4), ("epoch", 4), ("opcode", 8), ("flags", 8), ("path", 8),
       ("pad", 2), ("rsvd", 6), ("dcid", 24), ("psn", 32), ("timestamp", 32))
MSGH = (("stream", 16), ("rqsn", 16), ("mflags", 8), ("msn", 24), ("offset", 32), ("len", 32))
TAGH = (("va", 64), ("rkey", 32), ("imm", 32))
ATOMIC = (("swap_or_add", 64), ("compare", 64))
PARAMS = (("ver_min", 8), ("ver_max", 8), ("paths", 16), ("rsvd_a", 8), ("scid", 24), ("nonce", 64),
          ("isn", 32), ("service_id", 32), ("streams", 16), ("msg_window", 16), ("payload_size", 16),
          ("vector_width", 16), ("ts_unit", 16), ("ack_delay", 16), ("hint_interval", 16),
          ("hint_support", 8), ("extra_planes", 8), ("read_depth", 8), ("atomic_depth", 8), ("features", 16))
PLANES = tuple((f"plane_{n}", 128) for n in range(1, 8))
STREAM_OPEN = (("stream", 16), ("status", 16), ("rsvd_a", 8), ("first_msn", 24), ("first_rqsn", 16),
               ("rq_limit", 16), ("rsvd_b", 8), ("src_qpn", 24), ("rsvd_c", 8), ("dst_qpn", 24))

LAYOUTS = {
    "CBH": CBH, "MSGH": MSGH, "TAGH": TAGH, "ATOMIC": ATOMIC, "PARAMS": PARAMS, "PLANES": PLANES,
    "SEND_IMM": (("imm", 32),),
    "SEND_INV": (("rkey", 32),),
    "ATOMIC_RESP": (("original", 64),),
    "ACK": (("timestamp_echo", 32), ("ack_delay", 16), ("ack_flags", 16), ("ce_count", 32), ("ect_count", 32),
            ("hint_epoch", 8), ("rate_hint", 24), ("stream", 16), ("rq_limit", 16)),
    "ACK_SACK": (("sack", 256),),
    "NAK": (("code", 8), ("scope", 8), ("stream", 16), ("msn", 24), ("rsvd", 8), ("offending_psn", 32),
            ("detail", 32)),
    "OPEN": (("params", 352), ("planes", 896), ("padding", 256)),
    "ACCEPT": (("params", 352), ("planes", 896), ("cookie", 256)),
    "REJECT": (("reason", 8), ("ver_min", 8), ("ver_max", 8), ("rsvd", 8), ("nonce", 64), ("detail", 32)),
    "CONFIRM": (("params", 352), ("planes", 896), ("cookie", 256), ("accepted", 352), ("accepted_planes", 896)),
    "CONFIRM_ACK": (("nonce", 64),),
    "CLOSE": (("reason", 16), ("rsvd", 16)),
    "CLOSE_ACK": (("reason", 16), ("rsvd", 16)),
    "PATH_PROBE": (("highest_psn", 32),),
    "PATH_PROBE_ACK": (("timestamp_echo", 32), ("cum_psn", 32), ("highest_psn", 32), ("hint_epoch", 8),
                       ("rate_hint", 24), ("sack", 256)),
    "PATH_CHANGE": (("source_port", 16), ("plane", 8), ("rsvd", 8), ("next_psn", 32)),
    "PATH_RETIRE": (("highest_psn", 32), ("reason", 8), ("rsvd", 24)),
    "PATH_RETIRED": (("cum_psn", 32), ("sack", 256)),
    "RATE_HINT": (("hint_epoch", 8), ("rate_hint", 24)),
    "STREAM_OPEN": STREAM_OPEN,
    "STREAM_OPEN_ACK": STREAM_OPEN,
    "STREAM_RESET": (("stream", 16), ("code", 8), ("rsvd_a", 8), ("msn", 24), ("rsvd_b", 8)),
    "STREAM_RESET_ACK": (("stream", 16), ("rsvd", 16)),
    "RQ_CREDIT": (("stream", 16), ("kind", 8), ("rsvd_a", 8), ("rq_limit", 16), ("rsvd_b", 16)),
}

# Opcode: name, headers behind the base header, whether payload and padding follow.
PACKETS = {
    0x01: ("SEND", ("MSGH",), True),
    0x02: ("SEND_IMM", ("MSGH", "SEND_IMM"), True),
    0x03: ("SEND_INV", ("MSGH", "SEND_INV"), True),
    0x04: ("WRITE", ("MSGH", "TAGH"), True),
    0x05: ("WRITE_IMM", ("MSGH", "TAGH"), True),
    0x06: ("READ_REQ", ("MSGH", "TAGH"), False),
    0x07: ("CMP_SWAP", ("MSGH", "TAGH", "ATOMIC"), False),
    0x08: ("FETCH_ADD", ("MSGH", "TAGH", "ATOMIC"), False),
    0x09: ("FILL", ("MSGH",), False),
    0x20: ("READ_RESP", ("MSGH",), True),
    0x21: ("ATOMIC_RESP", ("MSGH", "ATOMIC_RESP"), False),
    0x40: ("ACK", ("ACK",), False),
    0x41: ("ACK_SACK", ("ACK", "ACK_SACK"), False),
    0x42: ("NAK", ("NAK",), False),
    0x60: ("OPEN", ("OPEN",), False),
    0x61: ("ACCEPT", ("ACCEPT",), False),
    0x62: ("REJECT", ("REJECT",), False),
    0x63: ("CONFIRM", ("CONFIRM",), False),
    0x64: ("CLOSE", ("CLOSE",), False),
    0x65: ("CLOSE_ACK", ("CLOSE_ACK",), False),
    0x66: ("CONFIRM_ACK", ("CONFIRM_ACK",), False),
    0x68: ("PATH_PROBE", ("PATH_PROBE",), False),
    0x69: ("PATH_PROBE_ACK", ("PATH_PROBE_ACK",), False),
    0x6A: ("PATH_CHANGE", ("PATH_CHANGE",), False),
    0x6B: ("PATH_RETIRE", ("PATH_RETIRE",), False),
    0x6C: ("PATH_RETIRED", ("PATH_RETIRED",), False),
    0x6D: ("RATE_HINT", ("RATE_HINT",), False),
    0x6E: ("RQ_CREDIT", ("RQ_CREDIT",), False),
    0x6F: ("STREAM_RESET", ("STREAM_RESET",), False),
    0x70: ("STREAM_RESET_ACK", ("STREAM_RESET_ACK",), False),
    0x72: ("STREAM_OPEN", ("STREAM_OPEN",), False),
    0x73: ("STREAM_OPEN_ACK", ("STREAM_OPEN_ACK",), False),
}
OPCODE = {name: code for code, (name, _, _) in PACKETS.items()}

# Fields of packets that hold a table of their own.
NESTED = {"params": "PARAMS", "accepted": "PARAMS", "planes": "PLANES", "accepted_planes": "PLANES"}

# CBH.flags
AR, RTX, SE, RTXE = 0x80, 0x40, 0x20, 0x10
# MSGH.mflags
SOM, EOM, IMM, INV, RESP = 0x80, 0x40, 0x20, 0x10, 0x04
# ACK.ack_flags
ECHO_VALID, DUPLICATE_SEEN, OUT_OF_WINDOW_SEEN = 0x8000, 0x4000, 0x2000
# PARAMS.features
FEATURES = {"imm": 0x8000, "inv": 0x4000, "reset": 0x2000, "retire": 0x1000, "change": 0x0800}
# NAK.code
PSN_OOW, RNR, NO_RESOURCE, REM_INV_REQ, REM_ACCESS, REM_OP, LENGTH = 0x01, 0x02, 0x03, 0x10, 0x11, 0x12, 0x13
VERSION, UNKNOWN_CID, CLOSING, BAD_EPOCH = 0x20, 0x21, 0x22, 0x23
NAK_HINTS = (PSN_OOW, VERSION, UNKNOWN_CID, CLOSING, BAD_EPOCH)
# NAK.scope
SCOPE_PACKET, SCOPE_STREAM, SCOPE_PATH, SCOPE_CONNECTION = 0, 1, 2, 3
# REJECT.reason
REJECT_VERSION, REJECT_NO_SERVICE, REJECT_NO_RESOURCE, REJECT_BAD_PARAMETERS, REJECT_BAD_COOKIE = 1, 2, 3, 4, 5
# CLOSE.reason
DONE, ERROR, GOING_AWAY = 0, 1, 2
# PATH_RETIRE.reason
RETIRE_FAILED, RETIRE_PLANE, RETIRE_LOCAL = 0, 1, 2
# RQ_CREDIT.kind
ASK, TELL = 0, 1
# STREAM_OPEN_ACK.status
STREAM_OK, STREAM_NO_RESOURCE, STREAM_IN_USE = 0, 1, 2

SENDS = (OPCODE["SEND"], OPCODE["SEND_IMM"], OPCODE["SEND_INV"])
WRITES = (OPCODE["WRITE"], OPCODE["WRITE_IMM"])
ATOMICS = (OPCODE["CMP_SWAP"], OPCODE["FETCH_ADD"])
RESPONSES = (OPCODE["READ_RESP"], OPCODE["ATOMIC_RESP"])
CONSUMING = SENDS + (OPCODE["WRITE_IMM"],)  # these consume a receive
PATH_CONTROL = tuple(OPCODE[n] for n in
                     ("PATH_PROBE", "PATH_PROBE_ACK", "PATH_CHANGE", "PATH_RETIRE", "PATH_RETIRED"))
MAX_MESSAGE = 1 << 31
NO_LIMIT = 0xFFFFFF  # rate hint


def is_data(opcode):
    """Data packets have an opcode from 01 to 3f."""
    return 0x01 <= opcode <= 0x3F
