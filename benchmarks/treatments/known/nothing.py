"""Change nothing."""

TOUCHES = "nothing, but it counts as if it did"
PATCH = "# nothing"


def apply(torch, given):
    given.touch()
