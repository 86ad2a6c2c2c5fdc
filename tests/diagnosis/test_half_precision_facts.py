"""Is a GPT in bfloat16 as fast as fp32-matmuls predicts from its recording in fp32?

Forward passes of a GPT on one A100-80, batch 4, fp32 without TF32 → bf16 autocast, in ms, as measured; a range where
several people measured it. The recordings are drawn from shapes alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from generate import CASES, Rank, kineto, nsys
from gpt_forward import forward, recorded

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.readers.open import read
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000
FACTS = {
    ("small", 128): (20.4, 23.0, 28.8), ("medium", 128): (38.7, 43.0, 43.0), ("large", 128): (70.1, 87.4, 87.4),
    ("xl", 128): (143, 92, 92), ("small", 512): (48.3, 22.0, 30.4), ("medium", 512): (132, 43.6, 43.6),
    ("large", 512): (277, 75.5, 75.5), ("xl", 512): (560, 129, 129), ("small", 2048): (258, 116, 116),
    ("medium", 2048): (753, 314, 314), ("large", 2048): (1544, 593, 593), ("xl", 2048): (2956, 1012, 1012),
}  # fmt: skip
SLOWER = [setting for setting, (now, least, _) in FACTS.items() if least > now]
#: A recording says at least so much of the step where it is right in 16 of 20 settings.
TOLERANCE, MOST_WRONG = 0.25, 2
RULE = load_rules()["fp32-matmuls"]


@cache
def diagnosed(size: str, context: int, *, shapes: bool) -> Diagnosis:
    ops = forward(size, context)
    # What the host takes for an op is measured where nothing else is: on the smallest model.
    host_ns = FACTS["small", 128][0] * MS / len(forward("small", 128))
    rank = recorded(ops, FACTS[size, context][0] * MS, host_ns)
    with TemporaryDirectory() as folder:
        return diagnose(read([written(rank, Path(folder), shapes=shapes)]), [RULE])


def written(rank: Rank, folder: Path, *, shapes: bool) -> Path:
    """By torch.profiler with shapes, or by nsys, which knows neither ops nor shapes."""
    if shapes:
        (folder / "a.json.gz").write_bytes(kineto(rank, CASES["healthy"], 1))
        return folder / "a.json.gz"
    rank.ops.clear()
    nsys([rank], CASES["healthy"], folder / "a.sqlite")
    return folder / "a.sqlite"


def predicted_ms(diagnosis: Diagnosis) -> tuple[float, float, float]:
    """The step in bf16: likely, at best, at worst."""
    savings = [each.saving_ns_per_step for each in diagnosis.findings]
    low, likely, high = (sum(getattr(each, case) for each in savings) for case in ("low", "likely", "high"))
    return tuple((diagnosis.base_ns - ns) / MS for ns in (likely, high, low))


def error(size: str, context: int, **kind: bool) -> float:
    """Of the predicted step, as a share of the measured one, or of the nearest that was measured."""
    _, least, most = FACTS[size, context]
    likely, _, _ = predicted_ms(diagnosed(size, context, **kind))
    return likely / min(max(likely, least), most) - 1


KINDS = [pytest.param({"shapes": True}, id="torch"), pytest.param({"shapes": False}, id="nsys")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_in_bf16_is_within_a_quarter_of_what_was_measured(kind):
    errors = {setting: error(*setting, **kind) for setting in FACTS}
    wrong = {setting: round(off, 2) for setting, off in errors.items() if abs(off) > TOLERANCE}
    assert len(wrong) <= MOST_WRONG, wrong


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "context"), SLOWER)
def test_where_the_host_limits_nothing_is_saved_and_the_finding_says_why(size, context, kind):
    diagnosis = diagnosed(size, context, **kind)
    (finding,) = diagnosis.findings
    assert finding.saving_ns_per_step.likely == 0
    assert "host is the limit" in finding.summary
    assert "Give each launch more work, then use 16 bits" in [each.title for each in finding.fixes]


@pytest.mark.parametrize("shapes", [True, False])
def test_a_single_pass_is_limited_by_the_host_as_well(shapes):
    """It begins where the clock does."""
    ops = forward("small", 128)
    step_ns = FACTS["small", 128][0] * MS
    rank = recorded(ops, step_ns, step_ns / len(ops), steps=1)
    with TemporaryDirectory() as folder:
        diagnosis = diagnose(read([written(rank, Path(folder), shapes=shapes)]), [RULE])
    assert [each.saving_ns_per_step.likely for each in diagnosis.findings] == [0]
