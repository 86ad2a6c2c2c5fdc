"""Does the whole chain hold for one training: is it recorded and left as it is, and are its fault and saving right?"""

from __future__ import annotations

import signal
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perfdoctor.recording.tools import gpu_counters
from perfdoctor.recording.tools.gpu_counters import GpuCounters
from perfdoctor.recording.tools.py_spy import PySpy
from perfdoctor.report.words.wording import counted, duration, fine_share, share
from perfdoctor.selftest.checks import Numbers, ToolCheck, Verdict, worst
from perfdoctor.selftest.obstacles import another_tool, by_messages
from perfdoctor.selftest.trials import Plain, RecordedTrial

#: Two executions of a training on a shared machine differ by so much; further apart, one of them was disturbed.
SAME_STEP_SHARE = 0.25
#: Outside of the recorded steps perfdoctor does nothing: what exceeds the noise between two runs by this is ours.
NOTABLE_OVERHEAD_SHARE = 0.05
#: A predicted range is for the step as recorded, or without a recorder if that differs much; one run of a few steps
#: differs by this.
PREDICTION_TOLERANCE_SHARE = 0.10

_DEFECT = "Report it with the line below the table: this is a defect of perfdoctor."


def recording(name: str, ran: RecordedTrial, rule: str, environment: Mapping[str, str]) -> ToolCheck:
    """Was the training recorded by this pass, were its steps found, and is its fault the first finding?"""
    seconds = ran.seconds
    if trouble := _not_recorded(ran):
        return _failed(name, ran, trouble, environment)
    step_ns = ran.step_ns()
    numbers = {"step_ns": step_ns, "first_rule": ran.first_rule(), "steps": _step_count(ran)}
    steps = f"{_step_count(ran)} steps of {duration(step_ns or 0)}"
    if ran.first_rule() == rule:
        return ToolCheck(name, Verdict.WORKS, f"{steps}, {rule} named first", "", seconds, numbers)
    if ran.finding(rule):
        what = f"{steps}; {rule} found behind {ran.first_rule()}"
        return ToolCheck(name, Verdict.LIMITED, what, "Another cause weighs more here: no harm.", seconds, numbers)
    return _failed(name, ran, f"{steps}, but {rule} was not found", environment, numbers)


def _not_recorded(ran: RecordedTrial) -> str:
    """The reason why there is no diagnosis with steps; "" if there is one."""
    if ran.code:
        return f"the training ended with {ran.code}"
    if not ran.diagnosis:
        return "there is no diagnosis"
    if not ran.step_ns():
        return "no steps were found"
    if not _step_count(ran):
        return "no recorded step could be used"
    return ""


def _step_count(ran: RecordedTrial) -> int:
    return int((ran.diagnosis.get("run") or {}).get("steps", {}).get("count") or 0)


def _failed(
    name: str, ran: RecordedTrial, trouble: str, environment: Mapping[str, str], numbers: Numbers | None = None
) -> ToolCheck:
    """The failed check: `trouble` with its cause by the messages of the tools, where that is known."""
    known = by_messages("\n".join([ran.messages, *ran.notes])) or another_tool(environment)
    if known:
        return ToolCheck(name, Verdict.FAILED, f"{trouble}: {known.what}", known.do, ran.seconds, numbers or {})
    return replace(failed(name, ran.messages, trouble, ran.seconds), numbers=numbers or {})


def failed(name: str, messages: str, otherwise: str, seconds: float = 0.0) -> ToolCheck:
    """The failed check by what these messages mean; else by `otherwise`, with their last line."""
    if known := by_messages(messages):
        return ToolCheck(name, Verdict.FAILED, known.what, known.do, seconds)
    last = next((line.strip() for line in reversed(messages.splitlines()) if line.strip()), "")
    what = f"{otherwise} ({last[:160]})" if last and last not in otherwise else otherwise
    return ToolCheck(name, Verdict.FAILED, what, _DEFECT, seconds)


def counters_sampled(counters: GpuCounters, ran: RecordedTrial) -> ToolCheck:
    """Did nsys sample the GPU's own counters? Where it may not, all else is recorded: a limit."""
    name, found = "GPU counters", {row["metric"] for row in ran.diagnosis.get("gpu_metrics") or ()}
    if found:
        return ToolCheck(name, Verdict.WORKS, f"{counted(len(found), 'counter')} sampled by nsys", "", ran.seconds)
    known = (counters.trouble, counters.do) if counters.trouble else gpu_counters.explain(ran.messages)
    if known:
        return ToolCheck(name, Verdict.LIMITED, *known, ran.seconds)
    return failed(name, ran.messages, "nsys sampled no counters", ran.seconds)


def with_limits(check: ToolCheck, what: str, do: str) -> ToolCheck:
    """A check that works, limited by `what` (nothing where that is "")."""
    if not what or check.verdict is not Verdict.WORKS:
        return check
    return replace(check, verdict=Verdict.LIMITED, found=f"{check.found}; {what}", do=do)


def does_not_show(check: ToolCheck, step_ns: float | None) -> ToolCheck:
    """A failed check of a recorded training as limited: its fault was not found because it costs nothing here."""
    if check.verdict is not Verdict.FAILED or not step_ns:
        return check
    what = f"{duration(step_ns)} a step; the fixed twin is no faster: its fault costs nothing here"
    return replace(check, verdict=Verdict.LIMITED, found=what, do="")


def both(first: ToolCheck, second: ToolCheck) -> ToolCheck:
    """Two checks of the same thing as one: the worse verdict, and what both found."""
    verdict = worst([first.verdict, second.verdict])
    do = next((each.do for each in (first, second) if each.verdict is verdict and each.do), "")
    numbers = {**first.numbers, **second.numbers}
    return ToolCheck(first.name, verdict, f"{first.found}; {second.found}", do, first.seconds + second.seconds, numbers)


def kernels_recorded(name: str, ran: RecordedTrial, environment: Mapping[str, str]) -> ToolCheck | None:
    """The failed check where no kernel of the GPU reached the timeline; None if one did."""
    rows = ran.diagnosis.get("recording") or ran.diagnosis.get("time") or []
    if any(row.get("kernel_count") for row in rows):
        return None
    return _failed(name, ran, "no kernel of the GPU was recorded", environment)


def same_step(first: RecordedTrial, second: RecordedTrial, names: Sequence[str]) -> ToolCheck:
    """Do two passes, which are two executions, agree on the step?"""
    one, other = first.step_ns(), second.step_ns()
    if not one or not other:
        return ToolCheck("passes agree", Verdict.ABSENT, "there is only one pass with steps")
    apart = abs(one - other) / min(one, other)
    numbers = {"first_step_ns": one, "second_step_ns": other}
    text = f"{names[0]} {duration(one)}, {names[1]} {duration(other)} a step: {share(apart)} apart"
    verdict, do = Verdict.WORKS, ""
    if apart > SAME_STEP_SHARE:
        verdict = Verdict.LIMITED
        do = "Two executions differ, or one recorder slows this program down: repeat it on a quiet machine."
    return ToolCheck("passes agree", verdict, text, do, 0.0, numbers)


def untouched(
    plain: Sequence[Plain], recorded: Sequence[RecordedTrial], exits: Sequence[tuple[str, int, int]]
) -> ToolCheck:
    """Are output and exit code of the training its own? `exits`: (pass, code without, code under perfdoctor)."""
    own = {each.comparable_output for each in plain}
    # A training whose own runs differ, by kernels that add in no fixed order, cannot be compared.
    others = [each for each in recorded if len(own) == 1 and each.comparable_output not in own]
    wrong = [f"{each.folder.name}: another output" for each in others]
    wrong += [f"{name}: {ending(code)} instead of {ending(wanted)}" for name, wanted, code in exits if code != wanted]
    if wrong:
        return ToolCheck("program untouched", Verdict.FAILED, "; ".join(wrong), _DEFECT)
    endings = ", ".join(dict.fromkeys(ending(wanted) for _, wanted, _ in exits))
    return ToolCheck("program untouched", Verdict.WORKS, f"output the same in {len(recorded)} runs; {endings} kept")


def ending(code: int) -> str:
    """How a process ended, by its exit status as `subprocess` gives it: negative for a signal."""
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def overhead(plain: Sequence[Plain], recorded: RecordedTrial) -> ToolCheck:
    """How much longer are steps while they are recorded, and outside of the window?"""
    reports = recorded.reports("torch")
    alone = [each.step_ms for each in plain if each.step_ms]
    if not reports or not alone or not reports[0].unwatched_step_ns or not reports[0].watched_step_ns:
        return ToolCheck("overhead", Verdict.ABSENT, "too few steps to compare")
    outside_ns, inside_ns = reports[0].unwatched_step_ns, reports[0].watched_step_ns
    inside = inside_ns / outside_ns - 1
    outside = outside_ns / (max(alone) * 1e6) - 1
    numbers = {"inside_share": inside, "outside_share": outside, "plain_step_ns": min(alone) * 1e6}
    text = f"recorded steps {_longer(inside)}, others {_longer(outside)}"
    if outside > NOTABLE_OVERHEAD_SHARE:
        do = "Steps that are not recorded should cost nothing: repeat it on a quiet machine before you trust this line."
        return ToolCheck("overhead", Verdict.LIMITED, text, do, 0.0, numbers)
    return ToolCheck("overhead", Verdict.WORKS, text, "", 0.0, numbers)


def _longer(share_longer: float) -> str:
    return f"{fine_share(share_longer)} longer" if share_longer >= 0 else "no longer"


def own_lines(tool: PySpy, ran: RecordedTrial, rule: str) -> ToolCheck:
    """Does the finding of this rule name the lines of the program's own code, in a run with the default options?"""
    if not tool.path or tool.trouble:
        return ToolCheck("own lines", Verdict.LIMITED if tool.path else Verdict.ABSENT, tool.trouble, tool.do)
    found: Sequence[dict[str, object]] = (ran.finding(rule) or {}).get("lines", ())
    if found:
        first = found[0]
        place = f"{first['file']}:{first['line']} in {first['function']}"
        return ToolCheck("own lines", Verdict.WORKS, f"{place} by {counted(int(str(first['samples'])), 'sample')}")
    why = next((line for line in (*ran.notes, *ran.messages.splitlines()) if "not sampled" in line), "")
    if why:
        return ToolCheck("own lines", Verdict.LIMITED, why[:200], "Findings name no lines here; nothing else changes.")
    more_steps = "Record more steps: perfdoctor run --steps 50. On a busy machine py-spy has few samples."
    return ToolCheck("own lines", Verdict.LIMITED, "no sample lies in the time of the finding", more_steps)


# --- the predicted saving ---


def prediction_kept(
    name: str, prediction: Mapping[str, Any], slow: RecordedTrial, plain: Sequence[Plain], fixed: Sequence[Plain]
) -> ToolCheck:
    """Does the fixed twin take the step that was predicted of the fix alone, on this machine?

    `plain` and `fixed`: unrecorded runs of the slow program and of its twin.
    """
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
    about = f"predicted: the fix leaves {share(likely)} of the step ({share(low)} to {share(high)})"
    if not likely < 1:  # see `wording.saving`
        about = f"how much the fix saves was not predicted, but {share(low)} to {share(high)} of the step are left"
    text = f"{about}; measured: the fixed twin takes {share(left)}"
    if low - PREDICTION_TOLERANCE_SHARE <= left <= high + PREDICTION_TOLERANCE_SHARE:
        return ToolCheck(name, Verdict.WORKS, text, "", 0.0, numbers)
    do = "The prediction misses on this machine: look at the range, and measure a fix before you keep it."
    return ToolCheck(name, Verdict.LIMITED, text, do, 0.0, numbers)


def saves_nothing(plain: Sequence[Plain], fixed: Sequence[Plain]) -> bool:
    """Is the fixed twin as slow, within the noise of two runs? Then the fault costs nothing on this machine."""
    before, after = _step_ms(plain), _step_ms(fixed)
    return before > 0 and after >= (1 - PREDICTION_TOLERANCE_SHARE) * before


def _step_ms(runs: Sequence[Plain]) -> float:
    """The median of their medians; 0 where one printed none."""
    found = [each.step_ms for each in runs]
    return statistics.median([each for each in found if each]) if all(found) and found else 0.0
