"""Set-up of a connection: OPEN, ACCEPT, CONFIRM, CONFIRM_ACK and REJECT (chapter 3)."""

import hashlib
import hmac
import ipaddress

from . import wire
from .codec import LAYOUTS
from .crc import address_bytes

NO_PLANES = {f"plane_{n}": bytes(16) for n in range(1, 8)}


def planes_field(addresses):
    """PLANES for own addresses in the planes from 1 on (CONN-037)."""
    return {f"plane_{n}": address_bytes(addresses[n - 1]) if n <= len(addresses) else bytes(16) for n in range(1, 8)}


def plane_addresses(planes, count):
    """The addresses of planes 1 to `count` as text."""
    out = []
    for n in range(1, count + 1):
        address = ipaddress.ip_address(planes[f"plane_{n}"])
        out.append(str(address.ipv4_mapped or address))
    return out


def family(field):
    """4 or 6 for an address field of 16 bytes."""
    return 4 if field[:12] == bytes(10) + b"\xff\xff" else 6


def within_limits(p):
    """Whether parameters lie within the limits of the table PARAMS (CONN-003)."""
    return (1 <= p["ver_min"] <= p["ver_max"] and 1 <= p["paths"] <= 256 and p["scid"] and p["streams"]
            and 1 <= p["msg_window"] <= 32767 and p["payload_size"] in (256, 512, 1024, 2048, 4096, 8192)
            and p["vector_width"] == 256 and 1 <= p["ts_unit"] <= 1000 and p["ack_delay"] <= 50000
            and p["hint_support"] <= 1 and p["extra_planes"] <= 7
            and (10 <= p["hint_interval"] <= 10000 if p["hint_support"] else p["hint_interval"] == 0))


def planes_fit(params, planes):
    """An address for each plane that is offered, and zero for every other (CONN-037)."""
    return all(any(planes[f"plane_{n}"]) == (n <= params["extra_planes"]) for n in range(1, 8))


def own_params(settings, scid, nonce, isn):
    """What this side asks for or agrees to."""
    hints = settings.hint_giver is not None
    features = 0
    for name in settings.features:
        features |= wire.FEATURES[name]
    return {"ver_min": 1, "ver_max": 1, "paths": settings.paths, "scid": scid, "nonce": nonce, "isn": isn,
            "service_id": settings.service_id, "streams": settings.streams, "msg_window": settings.msg_window,
            "payload_size": settings.payload_size, "vector_width": 256, "ts_unit": settings.ts_unit,
            "ack_delay": settings.ack_delay_us, "hint_interval": settings.hint_interval_us if hints else 0,
            "hint_support": int(hints), "extra_planes": len(settings.planes), "read_depth": settings.read_depth,
            "atomic_depth": settings.atomic_depth, "features": features}


def agree(settings, offer, offer_planes, own, families):
    """The parameters and planes of ACCEPT: at most what OPEN offers (CONN-007, CONN-033, PLN-010)."""
    agreed = dict(own)
    for field in ("paths", "streams", "msg_window", "payload_size"):
        agreed[field] = min(own[field], offer[field])
    agreed["features"] = own["features"] & offer["features"]
    extra = 0
    for n in range(1, min(own["extra_planes"], offer["extra_planes"]) + 1):
        if family(offer_planes[f"plane_{n}"]) != families[n - 1]:
            break
        extra = n
    agreed["extra_planes"] = extra
    agreed["service_id"] = offer["service_id"]
    return agreed, planes_field(settings.planes[:extra])


def accept_fits(offer, offer_planes, accepted, accepted_planes):
    """Whether an ACCEPT agrees to nothing that was not offered (CONN-039)."""
    if not within_limits(accepted) or not planes_fit(accepted, accepted_planes):
        return False
    if accepted["ver_min"] != 1 or accepted["ver_max"] != 1 or accepted["features"] & ~offer["features"]:
        return False
    if any(accepted[f] > offer[f] for f in ("paths", "streams", "msg_window", "payload_size", "extra_planes")):
        return False
    return all(family(offer_planes[f"plane_{n}"]) == family(accepted_planes[f"plane_{n}"])
               for n in range(1, accepted["extra_planes"] + 1))


class Cookies:
    """Cookies that only this acceptor can make: the time, and a keyed hash over everything that was agreed (SEC-003)."""

    def __init__(self, rng, life):
        self.key = rng.getrandbits(256).to_bytes(32, "big")
        self.life = life

    def make(self, now, *what):
        stamp = now.to_bytes(8, "big")
        return stamp + self._hash(stamp, *what)

    def fits(self, cookie, now, *what):
        """Whether the cookie is one of ours for just this; its age is another matter."""
        return hmac.compare_digest(cookie[8:], self._hash(cookie[:8], *what))

    def fresh(self, cookie, now):
        return 0 <= now - int.from_bytes(cookie[:8], "big") < self.life

    def _hash(self, stamp, source, destination, port, offer, offer_planes, accepted, accepted_planes):
        text = b"".join((stamp, address_bytes(source), address_bytes(destination), port.to_bytes(2, "big"),
                         LAYOUTS["PARAMS"].encode(offer), LAYOUTS["PLANES"].encode(offer_planes),
                         LAYOUTS["PARAMS"].encode(accepted), LAYOUTS["PLANES"].encode(accepted_planes)))
        return hmac.new(self.key, text, hashlib.sha256).digest()[:24]
