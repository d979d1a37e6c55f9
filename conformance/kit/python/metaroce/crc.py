"""CRC-32C (Castagnoli) over pseudo-header and packet: the trailer of every packet (PKT-002).

The package `crc32c` is used where it is installed; otherwise a table does, a hundred times slower.
"""

import ipaddress
import struct
from functools import lru_cache

POLYNOMIAL = 0x82F63B78  # reflected


def _make_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ POLYNOMIAL if byte & 1 else byte >> 1
        table.append(byte)
    return table


_TABLE = _make_table()


def pure_crc32c(data, crc=0):
    """CRC-32C of `data`, continuing from `crc`, with nothing but Python."""
    crc ^= 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


try:
    from crc32c import crc32c
except ImportError:
    crc32c = pure_crc32c


@lru_cache(maxsize=1024)
def address_bytes(address):
    """An address with 16 bytes; IPv4 as ::ffff:a.b.c.d."""
    address = ipaddress.ip_address(address)
    if address.version == 4:
        return bytes(10) + b"\xff\xff" + address.packed
    return address.packed


@lru_cache(maxsize=1024)
def _prefix_crc(source, destination, port):
    """CRC of the part of the pseudo-header that is the same for all packets between two addresses."""
    return crc32c(address_bytes(source) + address_bytes(destination) + struct.pack(">HH", port, 0))


def trailer(source, destination, port, body):
    """The trailer of a packet: 4 bytes. `body` is the packet without it, `port` the UDP destination port."""
    length = len(body) + 4 + 8
    crc = crc32c(struct.pack(">I", length), _prefix_crc(source, destination, port))
    return struct.pack(">I", crc32c(body, crc))
