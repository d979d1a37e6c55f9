"""Registered memory: regions, their keys, and what the peer may do with them (chapter 9)."""

import itertools


class Region:
    """Memory that the application has registered. `va` and `rkey` are what the peer names."""

    def __init__(self, mr, va, rkey, size, fill, rights, domain):
        self.mr, self.va, self.rkey, self.rights, self.domain = mr, va, rkey, frozenset(rights), domain
        self.data = bytearray([fill]) * size
        self.registered = True
        self.key_valid = True


class Memory:
    """All regions of an endpoint."""

    def __init__(self, rng):
        self.rng = rng
        self.regions = {}
        self.keys = {}
        self._numbers = itertools.count(1)
        self._next_va = 0x7F00_0000_0000

    def register(self, size, fill=0, rights=(), domain=0):
        """Rights are of "write", "read", "atomic", "invalidate"."""
        rkey = self.rng.getrandbits(32)
        while rkey in self.keys:
            rkey = self.rng.getrandbits(32)
        region = Region(next(self._numbers), self._next_va, rkey, size, fill, rights, domain)
        self._next_va += (size + 0x1FFF) & ~0xFFF  # a page between any two
        self.regions[region.mr] = region
        self.keys[rkey] = region
        return region

    def deregister(self, mr):
        region = self.regions.pop(mr)
        region.registered = region.key_valid = False

    def open_for(self, rkey, va, length, right, domain):
        """The region that a key opens for an access of the peer to [va, va + length), or None (MEM-004, MEM-006)."""
        region = self.keys.get(rkey)
        if region is None or not region.key_valid or right not in region.rights or region.domain != domain:
            return None
        if va < region.va or va + length > region.va + len(region.data):
            return None
        return region

    def may_invalidate(self, rkey, domain):
        """Whether a Send of a stream in `domain` may close this key (OPS-012)."""
        region = self.keys.get(rkey)
        return region is not None and region.key_valid and "invalidate" in region.rights and region.domain == domain

    def invalidate(self, rkey):
        region = self.keys.get(rkey)
        if region is not None:
            region.key_valid = False
