"""Serial numbers: numbers that wrap, compared over half of their space (chapter 1)."""


def ahead(a, b, bits=32):
    """By how much `a` is ahead of `b`: positive if it is later, negative if it is earlier."""
    half = 1 << (bits - 1)
    return ((a - b + half) & ((1 << bits) - 1)) - half


def add(a, n, bits=32):
    """The number that is `n` past `a`."""
    return (a + n) & ((1 << bits) - 1)
