"""Do findings of a recording with exact stacks name the functions in which their time passes?"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from folders import public
from recorded import in_ns, plain_json, recording

from perfdoctor.vocabulary.names.python_code import is_user_function

#: With idle time of known causes, and functions of its own beside those of libraries.
TRACES = ("kineto/bert-small-h100.json.gz", "kineto/eager-b200.json.gz")


def main_thread(path):
    """Start, end and name of the own functions of the thread that they take most of."""
    document, by_thread = plain_json(path), {}
    zero = int(document.get("baseTimeNanoseconds", 0))
    for event in document["traceEvents"]:
        if event.get("cat") == "python_function" and event["ph"] == "X" and is_user_function(event["name"]):
            start = zero + in_ns(event["ts"])
            by_thread.setdefault(event["tid"], []).append((start, start + in_ns(event["dur"]), event["name"]))
    return max(by_thread.values(), key=lambda rows: sum(end - start for start, end, _ in rows))


def time_in(functions, pieces):
    """In each piece, from one begin or end of a function to the next: the one that began last of those around it."""
    found = Counter()
    edges = sorted({at for start, end, _ in functions for at in (start, end)})
    for begin, end in pieces:
        cuts = [begin, *(at for at in edges if begin < at < end), end]
        for first, last in pairwise(cuts):
            around = [row for row in functions if row[0] <= first and last <= row[1]]
            if around:
                found[max(around, key=lambda row: (row[0], -row[1]))[2]] += last - first
    return found


@pytest.mark.recordings
@pytest.mark.parametrize("name", TRACES)
def test_the_functions_that_take_most_of_the_time_after_syncs_or_between_launches_are_named(name):
    found = recording(public(name))
    (place,) = found.run.places
    causes = {"launch-bound": "launch_bound", "host-syncs": "host_sync"}
    checked = [advice for advice in found.diagnosis.findings if advice.rule in causes]
    assert checked
    functions = main_thread(public(name))
    for advice in checked:
        idle = place.idle_causes[causes[advice.rule]] & place.window
        took = time_in(functions, list(idle))
        first = advice.lines[0]
        shown = f"{first.file}({first.line}): {first.function}"
        assert (first.is_function, first.samples) == (True, 0)
        assert took[shown] == max(took.values())
        assert first.time_ns == round(took[shown] / place.units)
        assert first.share == pytest.approx(took[shown] / idle.total_ns)
