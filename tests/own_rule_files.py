"""A folder with a rule as somebody outside would write it: a sound one, to be broken in one place at a time."""

from __future__ import annotations

from pathlib import Path

DOCUMENT = '''
id = "acme/slow-add"
title = "Adds take too long"
category = "kernels"
since = "1.0.0"
status = "preview"
needs = ["kernels", "places"]
action = "kernels"
summary = "{kernels_ms:.1f} ms of a {step_ms:.1f} ms step are {kernels_per_step:.0f} adds ({kernels_percent:.0f} %)."
why = "While an add runs, nothing else does."
not_a_problem_when = "The adds are the work."
references = ["https://example.org/adds"]

[thresholds.min_share_of_step]
value = 0.001
unit = "fraction of step time"
why = "Less is not seen in any training of ours."

[thresholds.saved_share_low]
value = 0.1
unit = "share of the adds"
why = "Of a tenth we are sure."

[thresholds.saved_share_likely]
value = 0.5
unit = "share of the adds"
why = "Half of them was gone where we fixed it."

[derivation]
formula = "{saved_share_likely} × {kernels_ms}"
low = "{saved_share_low} × {kernels_ms}"
high = "{kernels_ms}"

[derivation.inputs]
kernels_ms = { source = "recording", what = "time of adds, a step" }

[[fix]]
title = "Add less"
how = """
x = y
"""
effort = "minutes"
changes_numerics = false
'''
DETECTOR = '''
"""Adds that take long."""

import re

from perfdoctor.rule_api import of_kernels, shares

ADD = re.compile("Add|elementwise")


def adds(place):
    return place.kernels.name.matches(ADD)


def detect(run, at):
    found = of_kernels(run, adds, at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="acme/slow-add",
        saving=shares(at, "saved_share").of(found.ns),
        confidence="high",
        values=found.kernel_values(),
        evidence=found.kernel_evidence("adds a step"),
    )
'''


def write(folder: Path, document: str = DOCUMENT, detector: str | None = DETECTOR, name: str = "slow-add") -> Path:
    """The two files of the rule in this folder, which is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    document = document.replace("slow-add", name)
    (folder / f"{name}.toml").write_text(document, "utf-8")
    if detector is not None:
        text = detector.replace("slow-add", name)
        (folder / f"{name.replace('-', '_')}.py").write_text(text, "utf-8")
    return folder
