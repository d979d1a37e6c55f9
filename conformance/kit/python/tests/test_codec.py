"""The codec against the golden packets of the suite, in both directions."""

import json
import unittest
from pathlib import Path

from metaroce import codec, crc, wire

PACKETS = Path(__file__).resolve().parents[4] / "vectors" / "packets"


def value(found):
    """A field as the golden packets write it, as a number or bytes."""
    if isinstance(found, str):
        return int(found, 16) if found.startswith("0x") else bytes.fromhex(found)
    return found


def flatten(fields):
    """The fields of a golden packet as `Packet` has them."""
    out = {}
    for layer, members in fields.items():
        members = {k: value(v) for k, v in members.items() if not k.startswith("rsvd")}
        if layer in wire.NESTED:
            out[layer] = members
        else:
            out.update(members)
    return out


def vectors():
    for path in sorted(PACKETS.glob("*.json")):
        for vector in json.loads(path.read_text())["vectors"]:
            header = vector["pseudo_header"]
            yield vector, (header["source"], header["destination"], header["destination_port"])


class Codec(unittest.TestCase):
    def test_valid(self):
        """Every valid packet has the named fields, and becomes the same bytes again."""
        count = 0
        for vector, way in vectors():
            if "valid" not in vector:
                continue
            with self.subTest(vector["id"]):
                datagram = bytes.fromhex(vector["datagram"])
                packet = codec.decode(datagram, *way)
                expected = flatten(vector["valid"]["fields"])
                self.assertEqual(packet.__dict__, expected)
                again = codec.Packet(**flatten(vector["valid"]["fields"]))
                self.assertEqual(codec.encode(again, *way).hex(), datagram.hex())
                count += 1
        self.assertGreater(count, 100)

    def test_invalid(self):
        """Every invalid packet is refused with the named error."""
        count = 0
        for vector, way in vectors():
            if "invalid" not in vector:
                continue
            with self.subTest(vector["id"]):
                with self.assertRaises(codec.Malformed) as caught:
                    codec.decode(bytes.fromhex(vector["datagram"]), *way)
                found, expected = caught.exception, vector["invalid"]["error"]
                expected = {k: int(v, 16) if k == "found" and isinstance(v, str) else v for k, v in expected.items()}
                told = {"kind": found.kind, "layer": found.layer, "field": found.field, "found": found.found,
                        **found.more}
                self.assertEqual({k: v for k, v in told.items() if v is not None}, expected)
                count += 1
        self.assertGreater(count, 100)

    def test_crc(self):
        self.assertEqual(crc.pure_crc32c(b"123456789"), 0xE3069283)
        for n in range(64):
            data = bytes(i * n & 255 for i in range(n * 5))
            self.assertEqual(crc.pure_crc32c(data), crc.crc32c(data))
            self.assertEqual(crc.pure_crc32c(data[n:], crc.pure_crc32c(data[:n])), crc.crc32c(data))


if __name__ == "__main__":
    unittest.main()
