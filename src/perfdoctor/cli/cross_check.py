"""`perfdoctor analyze --cross-check`: where do our numbers agree with nsys's own, and where not?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from perfdoctor.cli import say
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from pathlib import Path

    from perfdoctor.readers.nsys.cross_check import CrossCheck, ExpertRule, Sum, SummaryCheck
    from perfdoctor.records.diagnosis import Diagnosis

#: More differences than these are only counted, unless --all is given.
_SHOWN = 5
_LONGEST_NAME = 60
#: A rule of `nsys analyze` → our rules about the same.
_OUR_RULES = {
    "cuda_memcpy_async": ("pageable-copies",),
    "cuda_memcpy_sync": ("host-syncs",),
    "cuda_memset_sync": ("host-syncs",),
    "cuda_api_sync": ("host-syncs",),
    "gpu_gaps": ("input-wait", "launch-bound", "host-syncs", "host-work", "idle-unknown"),
    "gpu_time_util": ("input-wait", "launch-bound", "host-syncs", "host-work", "idle-unknown"),
}


def check(paths: Sequence[Path]) -> None:
    """Raise PerfdoctorError, before any work, where nothing can be compared with nsys."""
    from perfdoctor.readers.nsys.cross_check import needed_nsys
    from perfdoctor.readers.open import holds_nsys

    if not holds_nsys(paths):
        raise PerfdoctorError(
            "--cross-check needs a recording of Nsight Systems",
            do="Pass a .nsys-rep, its .sqlite export, or a run folder with one; or leave out --cross-check.",
        )
    needed_nsys()


def cross_checked(paths: Sequence[Path], progress: Callable[[str], None]) -> list[CrossCheck]:
    from perfdoctor.readers.nsys.cross_check import cross_check, needed_nsys
    from perfdoctor.readers.open import nsys_exports

    tool, found = needed_nsys(), []
    for file, report, export in nsys_exports(paths, progress):
        progress(f"Comparing {file} with nsys")
        found.append(cross_check(file, report, export, tool))
    return found


def show(checked: Sequence[CrossCheck], diagnosis: Diagnosis, *, show_all: bool, quiet: bool, err: bool) -> None:
    for each in checked:
        lines = _verdict(each) if quiet else _lines(each, diagnosis, show_all=show_all)
        for line in lines:
            say.line(line, err=err)


def _verdict(checked: CrossCheck) -> Iterator[str]:
    from perfdoctor.report.words.foreign_text import clean_name

    compared = [each for each in checked.compared if not each.refused and (each.ours.count or each.theirs.count)]
    agreeing = sum(not each.differences for each in compared)
    verdict = f"{agreeing} of {len(compared)} summaries agree." if compared else "nothing could be compared."
    yield f"Cross-check of {clean_name(checked.file)} with nsys {checked.version}: {verdict}"


def _lines(checked: CrossCheck, diagnosis: Diagnosis, *, show_all: bool) -> Iterator[str]:
    yield from _verdict(checked)
    for each in checked.compared:
        yield from _compared(each, show_all=show_all)
    yield "  NVIDIA's expert rules (nsys analyze), and perfdoctor's:"
    for rule in checked.rules:
        yield f"    {_expert(rule)}"
        yield f"      perfdoctor: {_ours(rule, diagnosis)}"
    yield from (f"  {note}" for note in checked.notes)
    yield ""


def _compared(each: SummaryCheck, *, show_all: bool) -> Iterator[str]:
    from perfdoctor.report.words.foreign_text import clean_name

    head = f"  {each.what} ({each.source}): "
    if not each.ours.count and not each.theirs.count:
        yield f"{head}none recorded"
        return
    if each.refused:
        yield f"{head}not compared: {clean_name(each.refused)}"
        return
    if not each.differences:
        yield f"{head}agree: {each.names} name{'s' * (each.names != 1)}, {_sum(each.ours, each.unit)}"
        return
    yield f"{head}{len(each.differences)} of {each.names} differ"
    shown = each.differences if show_all else each.differences[:_SHOWN]
    for difference in shown:
        ours, theirs = _sum(difference.ours, each.unit), _sum(difference.theirs, each.unit)
        yield f"    {clean_name(difference.name)[:_LONGEST_NAME]}: perfdoctor {ours} · nsys {theirs}"
    if len(shown) < len(each.differences):
        yield f"    and {len(each.differences) - len(shown)} more: --all shows them"


def _sum(total: Sum | None, unit: str) -> str:
    if total is None:
        return "none"
    return f"{total.count:,} row{'s' * (total.count != 1)}, {total.total:,} {unit}"


def _expert(rule: ExpertRule) -> str:
    from perfdoctor.report.words.foreign_text import clean_name

    if rule.refused:
        return f"{rule.name}: not checked: {clean_name(rule.refused)}"
    took = f", {rule.total_ns / 1e6:.3f} ms" if rule.total_ns else ""
    return f"{rule.name}: {rule.rows} row{'s' * (rule.rows != 1)}{took}" if rule.rows else f"{rule.name}: nothing"


def _ours(rule: ExpertRule, diagnosis: Diagnosis) -> str:
    from perfdoctor.records.findings import with_symptoms
    from perfdoctor.report.words.wording import share

    base = max(diagnosis.base_ns, 1)
    found = [
        f"{advice.rule} would save {share(advice.saving_ns_per_step.likely / base)}"
        for advice in with_symptoms(diagnosis.findings)
        if advice.rule in _OUR_RULES[rule.name]
    ]
    findings = "; ".join(found) or f"no finding of {', '.join(_OUR_RULES[rule.name])}"
    return f"{rule.ours}; {findings}" if rule.ours else findings
