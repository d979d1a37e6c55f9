"""The scenes. Each function of `SUBJECTS` gives the sequences of one file: a right one, then the wrong ones made of it."""

from . import incast, order, receives, repair, requests, routes, setup


def subjects():
    """File name without ending, and what makes its sequences."""
    found = {}
    for module in (setup, repair, routes, order, receives, requests, incast):
        found.update(module.SUBJECTS)
    return found
