"""Collect Python's garbage rarely, and leave out what the start made."""

RULES = ("garbage-collection", "step-outliers", "rank-skew")
ADVICE = r"gc\.freeze|gc\.disable"
TOUCHES = "gc.freeze and gc.set_threshold, at the first update"
SINCE = "1.0"
RISK = "Reference cycles with tensors in them are freed later."
ANYWAY = True
PATCH = """import gc
gc.collect(); gc.freeze()             # before the first step
gc.set_threshold(50_000, 20, 100)"""


def apply(torch, given):
    import gc

    def rarely():
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        given.touch()

    given.at_first_update(rarely)
