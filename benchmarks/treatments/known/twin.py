"""Take the program as a person mended it, in the place of the slow one."""

TOUCHES = "everything: it is another program"
PATCH = "# by hand"


def apply(torch, given):
    given.touch()
