"""The scenes. Each function of `SUBJECTS` gives the sequences of one file: a right one, then the wrong ones made of it."""

from . import order, repair, setup


def subjects():
    """File name without ending, and what makes its sequences."""
    found = {}
    for module in (setup, repair, order):
        found.update(module.SUBJECTS)
    return found
