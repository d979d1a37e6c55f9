"""The scenes. Each function of `SUBJECTS` gives the sequences of one file: a right one, then the wrong ones made of it."""

from . import incast, operations, order, pauses, planes, receives, repair, requests, routes, setup, windows


def subjects():
    """File name without ending, and what makes its sequences."""
    found = {}
    for module in (setup, repair, routes, order, receives, requests, operations, incast, planes, pauses, windows):
        found.update(module.SUBJECTS)
    return found
