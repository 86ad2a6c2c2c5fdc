"""What does a new rule begin with? Two files that already find something, and a test that passes: words are TODO."""

from __future__ import annotations

from pathlib import Path
from string import Template

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.vocabulary.categories import CATEGORIES
from perfdoctor.vocabulary.own_rules import is_id

#: What a new rule finds before anybody changes it.
FINDS = "time in which the GPU waits in a range of one name"

_DOCUMENT = '''\
# What the rule is. Every field is explained in docs/own-rules.md of perfdoctor; words in capitals are yours to write.
id = "$id"
title = "TODO the failing condition, in words that people search for"
category = "input"                         # one of: $categories
since = "1.0.0"                            # the version of your rules that has it first
status = "preview"                         # "stable" when it has proved itself
needs = ["places", "ranges"]               # what must have been recorded, else the rule is skipped
# action = "kernels"                       # a replay predicts the saving: only of kernels, copies or collectives
summary = "{lost_ms:.1f} ms of a {step_ms:.1f} ms step ({lost_percent:.0f} %) {the_device} waits in TODO."
why = "TODO what it costs, and why."
not_a_problem_when = "TODO when a reader may leave it as it is."
references = ["https://docs.pytorch.org/docs/stable/profiler.html"]

[thresholds.min_share_of_step]
value = 0.03
unit = "fraction of step time"
why = "TODO why less is not worth a line."

[thresholds.saved_share_low]
value = 0.5
unit = "share of that time"
why = "TODO what of it is gone for certain with the fix, and how you know."

[thresholds.saved_share_likely]
value = 0.9
unit = "share of that time"
why = "TODO what of it was gone where you fixed it."

# How the saving is computed: plain arithmetic over {thresholds} and {values of the finding}, in ms.
[derivation]
formula = "{saved_share_likely} × {lost_ms}"
low = "{saved_share_low} × {lost_ms}"
high = "{lost_ms}"

[derivation.inputs]
lost_ms = { source = "recording", what = "idle time in the range, a step" }

[[fix]]
title = "TODO a verb, and what to do"
how = """
# TODO: code to paste
"""
effort = "hours"                           # minutes, hours or days
changes_numerics = false
'''

_DETECTOR = '''\
"""TODO: what is sought, in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.rule_api import Finding, Intervals, Measure, Place, Run, of_idle, shares

#: TODO: the range that your program marks: `with torch.profiler.record_function("$module"):`, or NVTX.
RANGE = "$module"


# Waits in ops or calls of CUDA, and kernels, copies and collectives of one kind are found in the same way with other
# functions: "What else a rule may seek" in docs/own-rules.md of perfdoctor.
def waiting(place: Place) -> Intervals:
    """When the device was idle while its rank was in that range."""
    ranges = place.timeline.ranges.of(rank=place.rank)
    found = ranges.take(ranges.name.equals(RANGE))
    return Intervals.of(found.start_ns, found.end_ns) & place.idle


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    found = of_idle(run, at["min_share_of_step"], waiting)
    if found is None:
        return
    yield Finding(
        rule="$id",
        saving_ns_per_step=shares(at, "saved_share").of(found.ns),
        confidence="high",
        values=found.time_values("lost"),  # lost_ms, step_ms, lost_percent
        evidence=(
            Measure("idle meanwhile, a step", found.ns, "ns"),
            Measure("times a step", found.times_per_step, "count"),
        ),
        explains=("input-wait", "host-work", "idle-unknown"),  # these are shown as its symptoms
    )
'''

_TEST = '''\
"""$id: where it fires, just below its threshold, and where it must stay silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from perfdoctor.rule_testing import draw_steps, findings

RULE = Path(__file__).with_name("$name.toml")
LEGEND = {"t": ("ranges", "$module"), "v": ("ranges", "validation")}


def training(on_host: str):
    """Six steps of 20 ms, a character a millisecond: the GPU computes, waits while `t` runs, and computes again."""
    return draw_steps(kernels="####            ####", host=[on_host], legend=LEGEND)


def test_it_finds_the_time_in_which_the_gpu_waits():
    (finding,) = findings(RULE, training("    tttttttttt      "))
    assert finding.values["lost_ms"] == pytest.approx(10)
    assert finding.values["step_ms"] == pytest.approx(20)


def test_below_its_threshold_it_is_silent():
    assert findings(RULE, training("    tttttttttt      "), min_share_of_step=0.51) == []


def test_while_the_gpu_computes_it_costs_nothing():
    assert findings(RULE, training("tttt                ")) == []


def test_anything_else_is_none_of_its_business():
    assert findings(RULE, training("    vvvvvvvvvv      ")) == []
'''


def write(rule_id: str, folder: Path) -> list[Path]:
    """Write the document, the detector and its test into `folder`; return their paths.

    Raises UsageError if `rule_id` is no id, and overwrites nothing.
    """
    if not is_id(rule_id):
        do = "It is NAMESPACE/NAME in lower case: perfdoctor rules new acme/slow-tokenizer"
        raise UsageError(f"{rule_id!r} is no id of a rule", do=do)
    name = rule_id.rpartition("/")[2]
    module = name.replace("-", "_")
    texts = {f"{name}.toml": _DOCUMENT, f"{module}.py": _DETECTOR, f"test_{module}.py": _TEST}
    files = [folder / file for file in texts]
    if there := next((file for file in files if file.exists()), None):
        raise PerfdoctorError(f"{there} is there already", do="Take another name, or --into another folder.")
    words = {"id": rule_id, "name": name, "module": module, "categories": ", ".join(CATEGORIES)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in zip(files, texts.values(), strict=True):
            file.write_text(Template(text).substitute(words), "utf-8")
    except OSError as error:
        raise PerfdoctorError(
            f"{folder} cannot be written to: {error.strerror or error}", do="Name another folder with --into."
        ) from error
    return files
