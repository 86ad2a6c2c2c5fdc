"""With which files does a rule of each category begin? One document, and a detector with its test for each shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: Of every rule; what differs from one category to the other stands between @ and is in `Skeleton.words`.
DOCUMENT = '''\
# What the rule is. Every field is explained in docs/own-rules.md of perfdoctor; words in capitals are yours to write.
id = "@ID@"
title = "TODO the failing condition, in words that people search for"
category = "@CATEGORY@"                    # one of: @CATEGORIES@
since = "1.0.0"                            # the version of your rules that has it first
status = "preview"                         # "stable" when it has proved itself
needs = [@NEEDS@]                          # what must have been recorded, else the rule is skipped
@ACTION@summary = "@SUMMARY@"
why = "TODO what it costs, and why."
not_a_problem_when = "TODO when a reader may leave it as it is."
references = ["https://docs.pytorch.org/docs/stable/profiler.html"]

[thresholds.min_share_of_step]
value = 0.03
unit = "fraction of step time"
why = "TODO why less is not worth a line."
@THRESHOLD@
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
formula = "{saved_share_likely} × {@VALUE@}"
low = "{saved_share_low} × {@VALUE@}"
high = "{@VALUE@}"

[derivation.inputs]
@VALUE@ = { source = "recording", what = "@WHAT@, a step" }

[[fix]]
title = "TODO a verb, and what to do"
how = """
# TODO: code to paste
"""
effort = "hours"                           # minutes, hours or days
changes_numerics = false
'''
_TRANSFER = """
[thresholds.transfer_share]
value = 0.8
unit = "share of their exposed time"
why = "TODO what of it is transfer: the rest is waiting for the latest rank."
"""


class Skeleton(NamedTuple):
    """`finds`: what the rule finds as it is begun. `words`: what its document says, by the mark that it replaces."""

    finds: str
    words: Mapping[str, str]
    detector: str
    test: str


# --- idle time while the host does something: input, host, memory ----------------------------------------------------

_HEAD = '''\
"""TODO: what is sought, in one line."""

from __future__ import annotations

'''
_WAITING = """

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
            Measure("idle meanwhile, a step", found.ns, "ns"),
            Measure("times a step", found.times_per_step, "count"),
        ),
        explains=(@EXPLAINS@),  # these are shown as its symptoms
    )
"""
_BY_RANGE = '''\
from collections.abc import Iterator, Mapping

from perfdoctor.rule_api import Finding, Intervals, Measure, Place, Run, of_idle, shares

#: TODO: the range that your program marks: `with torch.profiler.record_function("@NAME@"):`, or NVTX.
RANGE = "@NAME@"


def waiting(place: Place) -> Intervals:
    """When the device was idle while its rank was in that range."""
    ranges = place.timeline.ranges.of(rank=place.rank)
    found = ranges.take(ranges.name.equals(RANGE))
    return Intervals.of(found.start_ns, found.end_ns) & place.idle
'''
_BY_OP = '''\
import re
from collections.abc import Iterator, Mapping

from perfdoctor.rule_api import Finding, Intervals, Measure, Place, Run, of_idle, shares

#: TODO: a part of the names of what the host does meanwhile: ops (`aten::unique`), or ranges that your program marks.
NAME = re.compile("@NAME@")


def waiting(place: Place) -> Intervals:
    """When the device was idle while its rank was in one of these."""
    found = Intervals.empty()
    for signal in ("ops", "ranges"):
        rows = place.timeline[signal].of(rank=place.rank)
        rows = rows.take(rows.name.matches(NAME))
        found |= Intervals.of(rows.start_ns, rows.end_ns)
    return found & place.idle
'''
_BY_CALL = '''\
import re
from collections.abc import Iterator, Mapping

from perfdoctor.rule_api import Finding, Intervals, Measure, Place, Run, of_idle, shares

#: TODO: the calls of CUDA that allocate, free or pin memory in the loop.
CALLS = re.compile("cudaHostAlloc|cudaFreeHost")


def waiting(place: Place) -> Intervals:
    """When the device was idle while its rank was in one of these calls."""
    calls = place.timeline.calls.of(rank=place.rank)
    found = calls.take(calls.name.matches(CALLS))
    return Intervals.of(found.start_ns, found.end_ns) & place.idle
'''
_TEST_HEAD = '''\
"""@ID@: where it fires, just below its threshold, and where it must stay silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from perfdoctor.rule_testing import draw_steps, findings

RULE = Path(__file__).with_name("@FILE@.toml")
'''
_WAITING_TEST = '''
SOUGHT, OTHER = (@SOUGHT@), (@OTHER@)


def training(on_host: str):
    """Six steps of 20 ms, a character a millisecond: the GPU computes, waits while `t` runs, and computes again."""
    return draw_steps(kernels="####            ####", host=[on_host], legend={"t": SOUGHT, "v": OTHER})


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


def _waiting(
    finds: str, needs: str, rows: str, explains: str, what: str, sought: tuple[str, str], other: tuple[str, str]
) -> Skeleton:
    """`sought`, `other`: what its test draws, as the signal and the name of a row."""
    summary = "{lost_ms:.1f} ms of a {step_ms:.1f} ms step ({lost_percent:.0f} %) {the_device} waits in TODO."
    words = {
        "@NEEDS@": needs, "@ACTION@": "", "@SUMMARY@": summary, "@VALUE@": "lost_ms", "@WHAT@": what, "@THRESHOLD@": "",
        "@EXPLAINS@": explains,
        "@SOUGHT@": ", ".join(f'"{each}"' for each in sought), "@OTHER@": ", ".join(f'"{each}"' for each in other),
    }  # fmt: skip
    return Skeleton(finds, words, f"{_HEAD}{rows}{_WAITING}", f"{_TEST_HEAD}{_WAITING_TEST}")


# --- work on the device: kernels, copies, communication, device ------------------------------------------------------

_KERNELS = '''\
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
_KERNELS_TEST = """\
NAMES = {"#": "gemm", "k": "void @NAME@_kernel<float>(float*)"}  # one that the detector seeks


def test_it_finds_these_kernels():
    (finding,) = findings(RULE, draw_steps(kernels="############kkkk", kernel_names=NAMES))
    assert finding.values["kernels_ms"] == pytest.approx(4)
    assert finding.values["kernels_percent"] == pytest.approx(25)


def test_below_its_threshold_it_is_silent():
    assert findings(RULE, draw_steps(kernels="############kkkk", kernel_names=NAMES), min_share_of_step=0.26) == []


def test_other_kernels_are_none_of_its_business():
    assert findings(RULE, draw_steps(kernels="################", kernel_names=NAMES)) == []
"""
_COPIES = '''\
from collections.abc import Iterator, Mapping

from perfdoctor.rule_api import Finding, Mask, Measure, Place, Run, of_copies, shares

#: TODO: which copies: h2d, d2h, d2d, p2p or memset. `place.copies` knows their bytes and the kind of host memory, too.
DIRECTION = "h2d"


def sought(place: Place) -> Mask:
    """One bool a copy of the place: is it one of them?"""
    return place.copies.text("direction").equals(DIRECTION)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    found = of_copies(run, sought, at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="@ID@",
        saving=shares(at, "saved_share").of(found.ns),
        confidence="high",
        values=found.copy_values(),  # copies_per_step, megabytes, exposed_ms, step_ms, exposed_percent
        evidence=(
            Measure("TODO copies a step", found.per_step, "count"),
            Measure("their time without a kernel, a step", found.ns, "ns"),
        ),
        explains=("exposed-copies",),  # is shown as its symptom
    )
'''
_COPIES_TEST = """

def test_it_finds_these_copies():
    (finding,) = findings(RULE, draw_steps(kernels="############    ", copies="            hhhh"))
    assert finding.values["exposed_ms"] == pytest.approx(4)
    assert finding.values["exposed_percent"] == pytest.approx(25)


def test_below_its_threshold_it_is_silent():
    copied = draw_steps(kernels="############    ", copies="            hhhh")
    assert findings(RULE, copied, min_share_of_step=0.26) == []


def test_beside_a_kernel_they_cost_nothing():
    assert findings(RULE, draw_steps(kernels="############    ", copies="    hhhh        ")) == []


def test_copies_in_another_direction_are_none_of_its_business():
    assert findings(RULE, draw_steps(kernels="############    ", copies="            dddd")) == []
"""
_COLLECTIVES = '''\
from collections.abc import Iterator, Mapping

from perfdoctor.rule_api import Finding, Mask, Measure, Place, Run, of_collectives, shares

#: TODO: which collectives. `place.collectives` knows their bytes, group and data type, too.
KIND = "all_reduce"


def sought(place: Place) -> Mask:
    """One bool a collective of the place: is it one of them?"""
    return place.collectives.text("kind").equals(KIND)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    found = of_collectives(run, sought, at["transfer_share"], at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="@ID@",
        saving=shares(at, "saved_share").of(found.ns),
        confidence="high",
        values={"collectives_per_step": found.per_step, **found.time_values("exposed")},
        evidence=(
            Measure("TODO collectives a step", found.per_step, "count"),
            Measure("their transfer without a kernel, a step", found.ns, "ns"),
        ),
        explains=("exposed-communication",),  # is shown as its symptom
    )
'''
_COLLECTIVES_TEST = """\
SHARE = 0.8  # of their time that is transfer, as the document has it


def test_it_finds_these_collectives():
    (finding,) = findings(RULE, draw_steps(kernels="############    ", nccl="            ===="))
    assert finding.values["exposed_ms"] == pytest.approx(4 * SHARE)
    assert finding.values["collectives_per_step"] == pytest.approx(1)


def test_below_its_threshold_it_is_silent():
    sent = draw_steps(kernels="############    ", nccl="            ====")
    assert findings(RULE, sent, min_share_of_step=0.21) == []


def test_beside_a_kernel_they_cost_nothing():
    assert findings(RULE, draw_steps(kernels="############    ", nccl="    ====        ")) == []


def test_other_collectives_are_none_of_its_business():
    assert findings(RULE, draw_steps(kernels="############    ", nccl="            aaaa")) == []
"""
_UNEVEN = '''\
import re
from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.rule_api import Finding, Measure, Place, Run, affected, shares

#: TODO: a part of the names of kernels that have the same work each time.
NAME = re.compile("@NAME@")


def longer_ns(place: Place) -> float:
    """By how much these kernels take longer than the median of them, in ns of the place's window."""
    took_ns = place.kernel_ns[place.kernels.name.matches(NAME)]
    return float((took_ns - np.median(took_ns)).clip(0).sum()) if took_ns.size else 0.0


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    found = affected(run, longer_ns, at["min_share_of_step"])
    if found is None:
        return
    yield Finding(
        rule="@ID@",
        saving_ns_per_step=shares(at, "saved_share").of(found.ns),
        confidence="high",
        values=found.time_values("lost"),  # lost_ms, step_ms, lost_percent
        evidence=(Measure("longer than the median, a step", found.ns, "ns"),),
    )
'''
_UNEVEN_TEST = """\
NAMES = {"#": "gemm", "k": "void @NAME@_kernel<float>(float*)"}  # one that the detector seeks
EVEN, UNEVEN = "kk##kk##kk          ", "kk##kk##kkkkkkkk    "


def test_it_finds_what_one_of_them_takes_longer():
    (finding,) = findings(RULE, draw_steps(kernels=UNEVEN, kernel_names=NAMES))
    assert finding.values["lost_ms"] == pytest.approx(6)
    assert finding.values["step_ms"] == pytest.approx(20)


def test_below_its_threshold_it_is_silent():
    assert findings(RULE, draw_steps(kernels=UNEVEN, kernel_names=NAMES), min_share_of_step=0.31) == []


def test_where_all_take_the_same_it_is_silent():
    assert findings(RULE, draw_steps(kernels=EVEN, kernel_names=NAMES)) == []


def test_other_kernels_are_none_of_its_business():
    assert findings(RULE, draw_steps(kernels=UNEVEN, kernel_names={**NAMES, "k": "another"})) == []
"""


def _working(
    finds: str, needs: str, action: str, summary: str, value: str, what: str, detector: str, test: str,
    threshold: str = "",
) -> Skeleton:  # fmt: skip
    replayed = f'action = "{action}"'
    words = {
        "@NEEDS@": needs, "@SUMMARY@": summary, "@VALUE@": value, "@WHAT@": what, "@THRESHOLD@": threshold,
        "@ACTION@": f"{replayed:<43}# a replay of the step predicts the saving\n" if action else "",
    }  # fmt: skip
    return Skeleton(finds, words, f"{_HEAD}{detector}", f"{_TEST_HEAD}{test}")


#: By category.
SKELETONS: Mapping[str, Skeleton] = {
    "input": _waiting(
        "time in which the GPU waits in a range of one name", '"places", "ranges"', _BY_RANGE,
        '"input-wait", "host-work", "idle-unknown"', "idle time in the range",
        ("ranges", "@NAME@"), ("ranges", "validation"),
    ),
    "host": _waiting(
        "time in which the GPU waits while the host is in ops or ranges of one name", '"places", "ops|ranges"', _BY_OP,
        '"host-work", "launch-bound", "idle-unknown"', "idle time in these ops",
        ("ops", "acme::@NAME@"), ("ops", "aten::add"),
    ),
    "kernels": _working(
        "kernels of one name", '"kernels", "steps"', "kernels",
        "{kernels_per_step:.0f} TODO kernels take {kernels_ms:.1f} ms of a {step_ms:.1f} ms step "
        "({kernels_percent:.0f} %).",
        "kernels_ms", "time of these kernels", _KERNELS, _KERNELS_TEST,
    ),
    "copies": _working(
        "copies of one direction with no kernel beside them", '"copies", "steps"', "copies",
        "{copies_per_step:.0f} TODO copies of {megabytes:.0f} MB take {exposed_ms:.1f} ms of a {step_ms:.1f} ms step "
        "({exposed_percent:.0f} %) while no kernel runs.",
        "exposed_ms", "time of these copies without a kernel", _COPIES, _COPIES_TEST,
    ),
    "communication": _working(
        "collectives of one kind with no kernel beside them", '"collectives", "steps"', "collectives",
        "{collectives_per_step:.0f} TODO collectives take {exposed_ms:.1f} ms of a {step_ms:.1f} ms step "
        "({exposed_percent:.0f} %) while no kernel runs.",
        "exposed_ms", "transfer of these collectives without a kernel", _COLLECTIVES, _COLLECTIVES_TEST, _TRANSFER,
    ),
    "memory": _waiting(
        "time in which the GPU waits for calls that pin memory", '"places", "calls"', _BY_CALL,
        '"allocator-churn", "host-work", "idle-unknown"', "idle time in these calls",
        ("calls", "cudaHostAlloc"), ("calls", "cudaEventQuery"),
    ),
    "device": _working(
        "kernels of one name that take longer than the median of them", '"kernels", "steps"', "",
        "TODO kernels take {lost_ms:.1f} ms of a {step_ms:.1f} ms step ({lost_percent:.0f} %) longer than usual.",
        "lost_ms", "what these kernels take longer than the median of them", _UNEVEN, _UNEVEN_TEST,
    ),
}  # fmt: skip
