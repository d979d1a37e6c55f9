"""Work that a program posts, and the messages that it becomes."""

import itertools

from . import wire

_serial = itertools.count(1)

OPCODES = {"send": "SEND", "write": "WRITE", "read": "READ_REQ", "cmp_swap": "CMP_SWAP", "fetch_add": "FETCH_ADD"}


class Message:
    """Packets to send: a request, or the response to one. `data` is what is cut into pieces of `size` bytes."""

    is_response = False

    def __init__(self, stream, opcode, length):
        self.stream, self.opcode, self.length = stream, opcode, length
        self.msn = self.rqsn = None
        self.va = self.rkey = self.imm = self.swap_or_add = self.compare = 0
        self.solicited = False
        self.data = b""
        self.total = 1           # packets
        self.sent = 0            # packets that have been sent at least once
        self.acked = 0           # packets that have been acknowledged
        self.serial = next(_serial)

    def cut(self, size):
        """Sets the number of packets for a payload size."""
        one = self.opcode not in wire.SENDS + wire.WRITES + (wire.OPCODE["READ_RESP"],)
        self.total = 1 if one else max(1, -(-self.length // size))

    @property
    def all_acked(self):
        return self.acked == self.total


class Response(Message):
    """The answer to a Read or an atomic request. `data` is the result as it was when it was taken (OPS-036, OPS-042)."""

    is_response = True

    def __init__(self, stream, opcode, length, msn, data=b"", original=0):
        super().__init__(stream, opcode, length)
        self.msn, self.rqsn, self.data, self.original = msn, 0, data, original


class Work(Message):
    """One work request. It is complete when `status` is set and everything before it on its stream is."""

    def __init__(self, stream, kind, wr_id, length, *, local=None, inline=None, va=0, rkey=0, imm=None, invalidate=None,
                 compare=0, operand=0, signalled=True, solicited=False, fence=False):
        name = OPCODES[kind]
        if imm is not None:
            name += "_IMM"
        elif invalidate is not None:
            name = "SEND_INV"
        super().__init__(stream, wire.OPCODE[name], length)
        self.kind, self.wr_id, self.local, self.inline = kind, wr_id, local, inline
        self.va, self.rkey = va, rkey if invalidate is None else invalidate
        self.imm = imm or 0
        self.compare, self.swap_or_add = compare, operand
        self.signalled, self.solicited, self.fence = signalled, solicited, fence
        self.begun = False            # its first packet has been sent
        self.status = None            # of the completion
        self.place = None             # (path, epoch, PSN) of the packet of a request of one packet
        self.got = 0                  # packets of the response that have arrived
        self.answered = not self.wants_response
        self.failed_here = None       # a status of its own for when its stream ends
        self.rnr = False              # a NAK RNR has come for it
        self.credit_asks = 0          # answers without credit while it waited

    @property
    def wants_response(self):
        return self.kind in ("read", "cmp_swap", "fetch_add")

    @property
    def consumes(self):
        return self.opcode in wire.CONSUMING

    @property
    def under_way(self):
        """From the first packet until all are acknowledged and the response has come (chapter 1)."""
        return self.begun and not (self.all_acked and self.answered)


class Receive:
    """A posted receive buffer."""

    def __init__(self, wr_id, region, offset, length):
        self.wr_id, self.region, self.offset, self.length = wr_id, region, offset, length
        self.bound = False   # a message fills it


class Inbound:
    """A message that arrives: how many of its packets have, and whether it was refused."""

    def __init__(self, packet, payload_size):
        self.opcode, self.rqsn, self.length, self.msn = packet.opcode, packet.rqsn, packet.len, packet.msn
        one = packet.opcode in (wire.OPCODE["READ_REQ"],) + wire.ATOMICS
        self.total = 1 if one else max(1, -(-packet.len // payload_size))
        self.got = 0
        self.imm = None
        self.invalidate = None
        self.solicited = False
        self.receive = None
        self.request = None      # the packet of a Read or an atomic request
        self.where = None        # (path, epoch, PSN, plane) of the packet of a Read or an atomic request

    @property
    def whole(self):
        return self.got == self.total
