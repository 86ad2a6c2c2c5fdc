"""Is a diagnosis right, going by what is known of the recording?"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from made_recordings import made_paths

from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice
from perfdoctor.report import markdown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HERE = Path(__file__).parent
#: Means of counters are known to three digits behind the point.
_MEAN_DIGIT = 0.0006
#: Recordings that are not ours to ship: a folder that need not be there.
RECORDINGS = Path(os.environ.get("PERFDOCTOR_RECORDINGS") or _HERE.parent.parent / "shared" / "data")


def paths(case: Mapping[str, Any], folder: Path) -> list[Path]:
    """What is analysed: the file or folder, some of the folder's files, or what is made for the case."""
    if case.get("is_made"):
        return made_paths(case, folder)
    whole = case.get("folder", folder) / case["path"]
    return [whole / name for name in case["files"]] if "files" in case else [whole]


def recordings() -> Path | None:
    """The folder of public recordings, or None where it is not on this machine."""
    return RECORDINGS if RECORDINGS.is_dir() else None


def cases() -> list[Mapping[str, Any]]:
    return list(tomllib.loads((_HERE / "labels.toml").read_text("utf-8"))["case"])


def fixture_cases() -> list[Mapping[str, Any]]:
    """Every recording of fixtures/ with what its expected.toml says, as a case with a whole path."""
    folders = [
        folder
        for known in sorted((_HERE.parent / "fixtures").glob("*/expected.toml"))
        for folder in (known.parent / "nsys", known.parent / "torch")
        if folder.is_dir()
    ]
    return [
        _fixture_case(folder, tomllib.loads((folder.parent / "expected.toml").read_text("utf-8"))) for folder in folders
    ]


def _fixture_case(folder: Path, known: Mapping[str, Any]) -> Mapping[str, Any]:
    case: dict[str, Any] = {"path": str(folder.relative_to(_HERE.parent)), "folder": _HERE.parent}
    if known["first"]:
        case["first"] = [known["first"]]
    if known["healthy"]:
        case["nothing_above"] = 0.03
    return {**case, "found": known["found"], "silent": known["silent"]}


def all_findings(diagnosis: Diagnosis) -> list[Advice]:
    """Causes and their symptoms, flat."""
    return [each for cause in diagnosis.findings for each in (cause, *cause.symptoms)]


def wrong(case: Mapping[str, Any], diagnosis: Diagnosis) -> Iterator[str]:
    """Every label that the diagnosis breaks, in words."""
    findings = all_findings(diagnosis)
    share = {each.rule: each.saving_ns_per_step.likely / max(diagnosis.base_ns, 1) for each in findings}
    first = diagnosis.findings[0].rule if diagnosis.findings else "nothing"
    if "first" in case and first not in case["first"]:
        yield f"first is {first}, not {' or '.join(case['first'])}"
    yield from (f"{rule} is not found" for rule in case.get("found", ()) if rule not in share)
    if "only" in case and set(share) != set(case["only"]):
        yield f"found are {sorted(share)}, not {case['only']}"
    yield from (f"{rule} promises {share[rule]:.0%}" for rule in case.get("silent", ()) if share.get(rule, 0) > 0.03)
    if "nothing_above" in case:
        yield from (f"{rule} promises {part:.0%}" for rule, part in share.items() if part > case["nothing_above"])
    status = {outcome.rule: outcome.status for outcome in diagnosis.outcomes}
    yield from (
        f"{rule} is {status[rule]}, not skipped" for rule in case.get("skipped", ()) if status[rule] != "skipped"
    )
    yield from (f"{rule} failed" for rule, what in status.items() if what == "failed")
    sure = {each.rule: each.confidence for each in findings}
    yield from (f"{rule} is sure" for rule in case.get("not_sure", ()) if sure.get(rule) == "high")
    named = {each.rule: each.values.get("rank") for each in findings}
    yield from (
        f"{rule} names rank {named.get(rule)}"
        for rule, rank in case.get("names_rank", {}).items()
        if named.get(rule, rank) != rank
    )
    yield from _wrong_numbers(case, diagnosis)
    yield from _wrong_words(case, diagnosis)


def _wrong_numbers(case: Mapping[str, Any], diagnosis: Diagnosis) -> Iterator[str]:
    for row in diagnosis.recording:
        parts = (row.compute_ns, row.exposed_communication_ns, row.exposed_copy_ns, row.idle_ns)
        found = [100 * part / row.window_ns for part in parts]
        if any(abs(mine - known) > 1 for mine, known in zip(found, case.get("shares", found), strict=True)):
            yield "shares are " + " · ".join(f"{mine:.1f}" for mine in found)
    if "late_rank" in case:
        late = [each.values.get("late_rank") for each in all_findings(diagnosis) if each.rule == "rank-skew"]
        if late != [case["late_rank"]]:
            yield f"the late rank is {late}"
    if "window_ms" in case and abs(diagnosis.time[0].window_ns / 1e6 - case["window_ms"]) > 0.1:
        yield f"the window is {diagnosis.time[0].window_ns / 1e6:.1f} ms"
    means = {row.metric: row.recording_mean for row in diagnosis.gpu_metrics}
    yield from (
        f"the mean of {metric} is {means.get(metric)} %"
        for metric, mean in case.get("counters", {}).items()
        if abs((means.get(metric) or 0) - mean) > _MEAN_DIGIT
    )
    if "saves_ms" in case:
        low, high = case["saves_ms"]
        saved = diagnosis.findings[0].saving_ns_per_step.likely / 1e6 if diagnosis.findings else 0.0
        if not low <= saved <= high:
            yield f"promises {saved:.1f} ms, not {low} to {high}"
    if "step_ms" in case and not case["step_ms"][0] <= diagnosis.base_ns / 1e6 <= case["step_ms"][1]:
        yield f"the step is {diagnosis.base_ns / 1e6:.1f} ms"
    if "promised_step_ms" in case:
        measured, within = case["promised_step_ms"]
        yield from _broken_promise(diagnosis, diagnosis.findings[0].rule, measured, within)
    if "without_ms" in case:
        known = case["without_ms"]
        yield from _broken_promise(diagnosis, known["rule"], known["step"], known["within"])
    notes = " ".join(diagnosis.notes)
    if case.get("note", "") not in notes or (case.get("incomplete") and "ranks were recorded" not in notes):
        yield "the notes do not say what is missing"


def _wrong_words(case: Mapping[str, Any], diagnosis: Diagnosis) -> Iterator[str]:
    """What the report must say, and must not, however it is written."""
    text = " ".join(markdown.render(diagnosis).replace("\\", "").replace("\u00a0", " ").split()).casefold()
    fixes = " ".join(f"{fix.title} {fix.how}" for each in all_findings(diagnosis) for fix in each.fixes).casefold()
    yield from (f"it does not say: {words}" for words in case.get("says", ()) if words.casefold() not in text)
    yield from (f"it says: {words}" for words in case.get("never_says", ()) if words.casefold() in text)
    yield from (f"a fix says: {words}" for words in case.get("no_fix", ()) if words.casefold() in fixes)


def _broken_promise(diagnosis: Diagnosis, rule: str, measured_ms: float, within: float) -> Iterator[str]:
    """A step promised without this finding that is further from the measured one than allowed."""
    saved = next(each.saving_ns_per_step.likely for each in all_findings(diagnosis) if each.rule == rule)
    promised_ms = (diagnosis.base_ns - saved) / 1e6
    if abs(promised_ms / measured_ms - 1) > within:
        yield f"promises {promised_ms:.0f} ms without {rule}, measured {measured_ms:.0f} ms"
