"""What does a new rule begin with? Two files that already find something, and a test that passes: words are TODO."""

from __future__ import annotations

from pathlib import Path

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.vocabulary.categories import CATEGORIES
from perfdoctor.vocabulary.own_rules import is_id
from perfdoctor.vocabulary.rulebook import known

_DOCUMENT = '''\
# What the rule is. Every field is explained in docs/own-rules.md of perfdoctor; words in capitals are yours to write.
id = "@ID@"
title = "TODO the failing condition, in words that people search for"
category = "@CATEGORY@"                    # one of: @CATEGORIES@
since = "1.0.0"                            # the version of your rules that has it first
status = "preview"                         # "stable" when it has proved itself
needs = ["places", "ranges"]               # what must have been recorded, else the rule is skipped
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

#: TODO: the range that your program marks: `with torch.profiler.record_function("@NAME@"):`, or NVTX.
RANGE = "@NAME@"


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
        rule="@ID@",
        saving_ns_per_step=shares(at, "saved_share").of(found.ns),
        confidence="high",
        values=found.time_values("lost"),  # lost_ms, step_ms, lost_percent
        evidence=(
            Measure("idle in the range, a step", found.ns, "ns"),
            Measure("times a step", found.times_per_step, "count"),
        ),
        explains=("input-wait", "host-work", "idle-unknown"),  # these are shown as its symptoms
    )
'''
_KERNELS_DETECTOR = '''\
"""TODO: what is sought, in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from perfdoctor.rule_api import Finding, Mask, Place, Run, of_kernels, shares

#: TODO: a part of the names of these kernels.
NAME = re.compile("@NAME@")


def sought(place: Place) -> Mask:
    """One bool a kernel of the place: is it one of them?"""
    return place.kernels.name.matches(NAME)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    found = of_kernels(run, sought, at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="@ID@",
        saving=shares(at, "saved_share").of(found.ns),
        confidence="high",
        values=found.kernel_values(),  # kernels_per_step, kernels_ms, step_ms, kernels_percent
        evidence=found.kernel_evidence("TODO kernels a step"),
    )
'''
_TEST = '''\
"""@ID@: where it fires, just below its threshold, and where it must stay silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from perfdoctor.rule_testing import draw_steps, findings

RULE = Path(__file__).with_name("@FILE@.toml")
RANGE = "@NAME@"  # as in the detector


def training(on_host: str):
    """Six steps of 20 ms, a character a millisecond: the GPU computes, waits while `t` runs, and computes again."""
    return draw_steps(
        kernels="####            ####",
        host=[on_host],
        legend={"t": ("ranges", RANGE), "v": ("ranges", "validation")},
    )


def test_it_finds_the_time_in_which_the_gpu_waits():
    (finding,) = findings(RULE, training("    tttttttttt      "))
    assert finding.values["lost_ms"] == pytest.approx(10)
    assert finding.values["step_ms"] == pytest.approx(20)


def test_below_its_threshold_it_is_silent():
    assert findings(RULE, training("    tttttttttt      "), min_share_of_step=0.51) == []


def test_while_the_gpu_computes_the_range_costs_nothing():
    assert findings(RULE, training("tttt                ")) == []


def test_another_range_is_none_of_its_business():
    assert findings(RULE, training("    vvvvvvvvvv      ")) == []
'''
_KERNELS_TEST = '''\
"""@ID@: where it fires, just below its threshold, and where it must stay silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from perfdoctor.rule_testing import draw_steps, findings

RULE = Path(__file__).with_name("@FILE@.toml")
NAMES = {"#": "gemm", "k": "void @NAME@_kernel<float>(float*)"}  # one that the detector seeks


def test_it_finds_these_kernels():
    (finding,) = findings(RULE, draw_steps(kernels="############kkkk", kernel_names=NAMES))
    assert finding.values["kernels_ms"] == pytest.approx(4)
    assert finding.values["kernels_percent"] == pytest.approx(25)


def test_below_its_threshold_it_is_silent():
    assert findings(RULE, draw_steps(kernels="############kkkk", kernel_names=NAMES), min_share_of_step=0.26) == []


def test_other_kernels_are_none_of_its_business():
    assert findings(RULE, draw_steps(kernels="################", kernel_names=NAMES)) == []
'''
#: What the document of a rule about kernels says instead.
_OF_KERNELS = {
    'needs = ["places", "ranges"] ': 'needs = ["kernels", "steps"] ',
    "summary = ": 'action = "kernels"                         # a replay of the step predicts the saving\nsummary = ',
    "{lost_ms:.1f} ms of a {step_ms:.1f} ms step ({lost_percent:.0f} %) {the_device} waits in TODO.": (
        "{kernels_per_step:.0f} TODO kernels take {kernels_ms:.1f} ms of a {step_ms:.1f} ms step "
        "({kernels_percent:.0f} %)."
    ),
    "idle time in the range, a step": "time of these kernels, a step",
    "lost_ms": "kernels_ms",
}


def write(rule_id: str, folder: Path, category: str) -> list[Path]:
    """The document, the detector and its test. Raises UsageError for an id that is none, and overwrites nothing."""
    if not is_id(rule_id):
        do = "It is NAMESPACE/NAME in lower case: perfdoctor rules new acme/slow-tokenizer"
        raise UsageError(f"{rule_id!r} is no id of a rule", do=do)
    known(category, CATEGORIES, "category")
    name = rule_id.rpartition("/")[2]
    module = name.replace("-", "_")
    texts = dict(zip((f"{name}.toml", f"{module}.py", f"test_{module}.py"), _texts(category), strict=True))
    files = [folder / file for file in texts]
    if there := next((file for file in files if file.exists()), None):
        raise PerfdoctorError(f"{there} is there already", do="Take another name, or --into another folder.")
    words = {
        "@ID@": rule_id, "@NAME@": module, "@FILE@": name, "@CATEGORY@": category,
        "@CATEGORIES@": ", ".join(CATEGORIES),
    }  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in zip(files, texts.values(), strict=True):
            for mark, word in words.items():
                text = text.replace(mark, word)  # noqa: PLW2901
            file.write_text(text, "utf-8")
    except OSError as error:
        raise PerfdoctorError(
            f"{folder} cannot be written to: {error.strerror or error}", do="Name another folder with --into."
        ) from error
    return files


def _texts(category: str) -> tuple[str, str, str]:
    """Of a rule about kernels, or about idle time."""
    if category != "kernels":
        return _DOCUMENT, _DETECTOR, _TEST
    document = _DOCUMENT
    for usual, instead in _OF_KERNELS.items():
        assert usual in document
        document = document.replace(usual, instead)
    return document, _KERNELS_DETECTOR, _KERNELS_TEST
