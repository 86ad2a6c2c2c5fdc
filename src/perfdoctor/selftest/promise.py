"""Is what a fix was predicted to bring what its fixed twin brings, on this machine?"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from perfdoctor.report.words.wording import share
from perfdoctor.selftest.checks import ToolCheck, Verdict
from perfdoctor.selftest.trials import Plain, RecordedTrial

#: The range is for the step as recorded, or without a recorder if that differs much; one run of a few steps by this.
TOLERANCE_SHARE = 0.10


def kept(
    name: str, prediction: Mapping[str, Any], slow: RecordedTrial, plain: Sequence[Plain], fixed: Sequence[Plain]
) -> ToolCheck:
    """`prediction`: of the fix alone. `plain` and `fixed`: unrecorded runs of the slow program and of its twin."""
    step_ns, predicted = prediction.get("unrecorded_step_ns") or slow.step_ns(), prediction.get("step_ns")
    before, after = _step_ms(plain), _step_ms(fixed)
    if not before or not after:
        failed = next((each for each in (*plain, *fixed) if not each.step_ms), None)
        last = failed.errors.strip().splitlines()[-1:] if failed else []
        return ToolCheck(
            name, Verdict.FAILED, f"the program ended with {failed.code if failed else 0}: {' '.join(last)[:160]}"
        )
    left = after / before
    if not step_ns or not predicted:
        return ToolCheck(name, Verdict.ABSENT, f"nothing was predicted; the fixed twin takes {share(left)} of the step")
    low, likely, high = (float(predicted[case]) / step_ns for case in ("low", "likely", "high"))
    numbers = {"left_share": left, "predicted_low": low, "predicted_likely": likely, "predicted_high": high}
    text = f"predicted {share(likely)} of the step ({share(low)} to {share(high)}), the fixed twin takes {share(left)}"
    if low - TOLERANCE_SHARE <= left <= high + TOLERANCE_SHARE:
        return ToolCheck(name, Verdict.WORKS, text, "", 0.0, numbers)
    do = "The prediction misses on this machine: look at the range, and measure a fix before you keep it."
    return ToolCheck(name, Verdict.LIMITED, text, do, 0.0, numbers)


def saves_nothing(plain: Sequence[Plain], fixed: Sequence[Plain]) -> bool:
    """Is the fixed twin as slow, within the noise of two runs? Then the fault costs nothing on this machine."""
    before, after = _step_ms(plain), _step_ms(fixed)
    return before > 0 and after >= (1 - TOLERANCE_SHARE) * before


def _step_ms(runs: Sequence[Plain]) -> float:
    """The median of their medians; 0 where one printed none."""
    found = [each.step_ms for each in runs]
    return statistics.median([each for each in found if each]) if all(found) and found else 0.0
