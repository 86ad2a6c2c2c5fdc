"""Raise where it is applied."""

TOUCHES = "what the measurement is to find out: crash"
PATCH = "# crash"


def apply(torch, given):
    raise KeyError("this torch lacks a name")
