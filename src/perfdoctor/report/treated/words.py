"""What is said of treatments that were tried, everywhere alike? Here is all rounding of them."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from perfdoctor.report.words.foreign_text import clean
from perfdoctor.report.words.wording import counted, duration, size
from perfdoctor.treatments.records import LossDifference, ShareRange, Together, TreatResult, TriedFix

#: In the order of the table.
ORDER = ("keep", "changes the numbers", "not decided", "no effect", "slower", "failed", "nothing to change")
_SAME = {
    "equal": "equal", "rounding": "rounding", "not judged": "not judged", "unknown": "–",
    "another training": "another training",
}  # fmt: skip
#: Relative differences of losses that are this large are no single roundings; that the control has them, too, is said.
_AMPLIFIED = 1e-4
#: Memory that differs by less is the same: runs of one program do.
_SAME_MEMORY = 0.05
#: Cores: what other programs use is said from here on.
_BUSY = 0.2


def rows(result: TreatResult) -> list[TriedFix]:
    """The rows in the order in which they are shown."""
    return sorted(
        result.rows, key=lambda row: (ORDER.index(row.verdict), -(row.measured.likely if row.measured else 0.0))
    )


def verdict(result: TreatResult) -> str:
    """The result in a sentence."""
    best = result.together
    if best is not None:
        return f"Keep {_names(best.fixes)}: {_saves(best.measured)}."
    if not result.rows:
        return "There is no fix to try."
    if any(row.verdict == "not decided" for row in result.rows):
        return "Not enough was measured to keep a fix."
    changing = [row.measured for row in result.rows if row.verdict == "changes the numbers"]
    if any(each is not None and each.low is not None and each.low > 0 for each in changing):
        return "Only fixes that change the numbers make this training faster."
    if changing:
        return "None of the fixes that were tried is shown to make this training faster."
    return "None of the fixes that were tried makes this training faster."


def _names(fixes: tuple[str, ...]) -> str:
    return " and ".join((", ".join(fixes[:-1]), fixes[-1])) if len(fixes) > 1 else fixes[0]


def _saves(saved: ShareRange | None) -> str:
    if saved is None:
        return "what it saves is not known"
    return f"a step takes {_percent(saved.likely)} less time ({between(saved)})"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def between(saved: ShareRange) -> str:
    """The interval, in per cent."""
    low = "−∞" if saved.low is None else f"{saved.low * 100:.0f}".replace("-", "−")
    high = "∞" if saved.high is None else f"{saved.high * 100:.0f} %".replace("-", "−")
    return f"{low} to {high}"


def saving(saved: ShareRange | None) -> str:
    """A share that is saved, with its interval."""
    if saved is None:
        return "–"
    if saved.low is None and saved.high is None:
        return f"{saved.likely * 100:.0f} % (no interval yet)".replace("-", "−")
    return f"{saved.likely * 100:.0f} % ({between(saved)})".replace("-", "−")


def promised(row: TriedFix) -> str:
    """What the diagnosis predicted."""
    return saving(row.promised)


def memory(row: TriedFix) -> str:
    """What is held at most, where that is another size; of the GPU where there is one."""
    before, after = row.gpu_bytes if any(row.gpu_bytes) else row.host_bytes
    if not before or not after:
        return "–"
    change = after - before
    if abs(change) < _SAME_MEMORY * before:
        return "same"
    return f"{'+' if change > 0 else '−'}{size(abs(change))}"


def loss(found: LossDifference) -> str:
    """Whether it is the same training, in few words."""
    same = _SAME.get(found.verdict, "")
    if found.verdict == "rounding":
        same += f", {found.largest:.0e}"
        if found.largest >= _AMPLIFIED and found.carried is not None:
            same += f" (control {found.carried:.0e})"
    if found.verdict == "differs":
        same = f"differs by {found.largest:.0e}"
    if found.parameters is not None:
        same += f"; parameters {'equal' if found.parameters else 'differ'}"
    return same


def reason(row: TriedFix) -> str:
    """The verdict with its reason."""
    return f"{row.verdict}: {clean(row.why)}" if row.why else row.verdict


def once(row: TriedFix) -> str:
    """What it costs once, where that can be noticed."""
    return f"The start takes {row.once_s:.0f} s longer." if row.once_s >= 1 else ""


def how(result: TreatResult) -> Iterator[str]:
    """How it was measured, in sentences."""
    runs = len(result.runs)
    steps = f" of {counted(result.steps_per_run, 'step')}" if result.steps_per_run else ""
    step = f"; an untreated step takes {duration(result.untreated_ns)}" if result.untreated_ns else ""
    yield f"{counted(runs, 'run')}{steps} in {result.seconds:.0f} s of {result.budget_s:.0f} s{step}."
    yield (
        f"Each interval holds however often one looks; a fix that does nothing is kept in at most 5 of 100 "
        f"commands (α = {result.level:.3g} for each)."
    )
    if result.steps_of_turn:
        yield (
            f"Untreated and treated programs were at work at once, in turns of {counted(result.steps_of_turn, 'step')} "
            "while the others were stopped: what else goes on here is the same for all of them."
        )
    elif result.why_alone:
        yield f"Each run was alone, one behind the other: {clean(result.why_alone)}."
    busy = [run.others for run in result.runs if not run.why]
    if busy and median(busy) >= _BUSY:
        yield f"Other programs used {median(busy):.1f} of {counted(result.cores, 'core')} meanwhile."
    disturbed = sum(row.disturbed for row in result.rows)
    if disturbed:
        yield f"{counted(disturbed, 'pair')} made anew, as other programs disturbed one of its runs."
    if result.is_interrupted:
        yield "It was interrupted: this is what was known by then."


def together(best: Together) -> str:
    """What the best fixes are, and why no more of them."""
    text = f"{_names(best.fixes)}: {saving(best.measured)}, loss {loss(best.loss)}"
    return f"{text}. {best.why}." if best.why else text


def patch(result: TreatResult) -> list[str]:
    """The lines for the program, of all that is kept."""
    kept = set(result.together.fixes) if result.together else set()
    found = []
    for row in rows(result):
        if row.fix in kept:
            found += [f"# {row.title}", *row.patch.splitlines(), ""]
    return found[:-1]
