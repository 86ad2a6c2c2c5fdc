"""What is wrong with this run, in which order, and what was not looked at? Runs the rules and ranks what they find."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from perfdoctor.detectors import detector
from perfdoctor.diagnosis import prediction
from perfdoctor.diagnosis.certainty import judged
from perfdoctor.diagnosis.moments import moments
from perfdoctor.diagnosis.prediction import NOTICED, Question, speedup
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.accounting.prepare import keep_findings, prepare, selection_notes, step_stats
from perfdoctor.metrics.accounting.split import split, whole_recording
from perfdoctor.metrics.host.loader import unhidden_share
from perfdoctor.metrics.host.pace import run_spare_ns
from perfdoctor.metrics.memory.peak import memory_uses
from perfdoctor.metrics.work.device_peaks import peaks
from perfdoctor.metrics.work.efficiency import efficiency
from perfdoctor.model.place import MATMUL_FAMILIES
from perfdoctor.model.run import Run
from perfdoctor.model.selection import WHOLE_RECORDING, Selection
from perfdoctor.model.timeline import Timeline
from perfdoctor.records.diagnosis import Diagnosis, GpuInfo, SourceInfo
from perfdoctor.records.findings import Advice, Finding, Fix, Outcome
from perfdoctor.records.savings import Saving
from perfdoctor.records.time_split import KernelRow
from perfdoctor.replay.graph.critical_path import critical_path
from perfdoctor.replay.what_if.savings import Stage, stage
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.rulebook import Rule
from perfdoctor.vocabulary.signals import MACHINE_SIGNALS

#: Of the critical path; what is further down is too short to be worth shortening.
MOST_PIECES = 12
#: The kernel table of a report: more rows help nobody, fewer hide the tail.
_KERNEL_ROWS = 30


def diagnose(
    timeline: Timeline, rules: Sequence[Rule], what_if: Sequence[Question] = (), selection: Selection = WHOLE_RECORDING
) -> Diagnosis:
    """Run every rule on a recording. A rule that raises becomes `failed`, and the others go on.

    `what_if`: the fixes to predict together, instead of the first ones found. `selection`: the part that is analysed.
    Raises as `prediction.answered` and `selection.narrowed` do.
    """
    return examine(prepare(timeline, selection), rules, what_if)


def examine(run: Run, rules: Sequence[Rule], what_if: Sequence[Question] = ()) -> Diagnosis:
    """The same of a recording that was prepared before, for those who need the run as well."""
    timeline = run.timeline
    outcomes: list[Outcome] = []
    seen: list[tuple[Rule, Finding]] = []
    for rule in rules:
        outcome, findings = _apply(rule, run)
        outcomes.append(outcome)
        seen.extend((rule, finding) for finding in findings)
    keep_findings(run, [finding for _, finding in seen])
    played = stage(run) if what_if else _staged(seen, run)
    promised = [_noticed(_promised(rule, finding, run, played), run) for rule, finding in seen]
    found = [(_hanging(rule, each, seen), each) for (rule, _), each in zip(seen, promised, strict=True)]
    in_vain = {rule.id for (rule, alone), each in zip(seen, promised, strict=True) if _in_vain(alone, each)}
    ranked = _ranked(found, run, in_vain)
    predicted = (
        prediction.answered(what_if, ranked, seen, outcomes, run, played)
        if what_if
        else prediction.predicted(ranked, seen, run, played)
    )
    return Diagnosis(
        sources=tuple(SourceInfo(s.kind, s.file, s.tool_version, s.ranks) for s in timeline.sources),
        gpus=_gpus(run),
        world_size=max(timeline.world_size, len(timeline.ranks)),
        steps=step_stats(run),
        time=tuple(split(place) for place in run.places),
        recording=tuple(split(whole_recording(place)) for place in run.places),
        kernels=_kernel_table(run),
        outcomes=tuple(outcomes),
        findings=ranked,
        prediction=predicted,
        notes=_all_notes(run, seen, prediction.notes(predicted, run, played)),
        base_ns=run.step_ns,
        per_step=run.per_step,
        titles={rule.id: rule.title for rule in rules},
        memory=memory_uses(timeline),
        critical_path=critical_path(played.graphs, played.unchanged(), MOST_PIECES) if played else None,
        efficiency=efficiency(run),
    )


def missing(rule: Rule, run: Run) -> tuple[str, ...]:
    """What the rule needs and the recording lacks; `a|b` is met by either.

    Beside the signals: "steps" (steps were found), "places" (there is something to account for), "ranks" (several).
    """
    have = set(run.timeline.recorded)
    if run.places:
        have.add("places")
    if any(len(place.collectives) for place in run.places):  # on a run without a GPU, those of the host
        have.add("collectives")
    if run.per_step:
        have.add("steps")
    if len(run.timeline.ranks) > 1:
        have.add("ranks")
    needs = rule.needs_without_gpu if rule.needs_without_gpu and host_places(run) else rule.needs
    return tuple(need for need in needs if have.isdisjoint(need.split("|")))


def _apply(rule: Rule, run: Run) -> tuple[Outcome, list[Finding]]:
    lacking = missing(rule, run)
    if lacking:
        return Outcome(rule.id, "skipped", lacking), []
    try:
        findings = list(detector(rule)(run, rule.at))
        for finding in findings:  # a placeholder that no value fills is the rule's fault, not the report's
            _summary(rule, finding)
    except Exception as error:  # noqa: BLE001 a defect in one rule must not cost the other answers
        return Outcome(rule.id, "failed", error=f"{type(error).__name__}: {error}"), []
    return Outcome(rule.id, "found" if findings else "clear"), findings


def _hanging(rule: Rule, finding: Finding, seen: Sequence[tuple[Rule, Finding]]) -> Rule:
    """The rule, as a symptom also of what this finding names, and of what names it."""
    causes = (*finding.symptom_of, *(cause.rule for _, cause in seen if rule.id in cause.explains))
    return replace(rule, symptom_of=(*rule.symptom_of, *causes)) if causes else rule


def _staged(seen: Sequence[tuple[Rule, Finding]], run: Run) -> Stage | None:
    """The run ready to be played again, if any finding asks for it."""
    return stage(run) if any(rule.action and finding.saving_ns_per_step.likely for rule, finding in seen) else None


def _promised(rule: Rule, finding: Finding, run: Run, played: Stage | None) -> Finding:
    """What a fix brings: the step played again with it, or, where that cannot be, what loader and host leave of it."""
    if played is None or not played.can_play(rule.action, finding) or not finding.saving_ns_per_step.likely:
        return _what_remains(rule, finding, run)
    return replace(finding, saving_ns_per_step=played.saving(played.fix(rule.id, rule.action, finding)))


def _what_remains(rule: Rule, finding: Finding, run: Run) -> Finding:
    """While a loader or the host is the limit, faster work on the device only waits longer: promise what remains."""
    full = finding.saving_ns_per_step
    share = unhidden_share(run) if rule.hidden_by_loader else 1.0
    spare_ns = run_spare_ns(run) if rule.hidden_by_host else None
    most_ns = full.high if spare_ns is None else spare_ns
    low, likely = (min(int(ns * share), most_ns) for ns in (full.low, full.likely))
    return replace(finding, saving_ns_per_step=Saving(low, likely, full.high))


def _noticed(finding: Finding, run: Run) -> Finding:
    """The same, without a saving that nobody could measure: it is said as what was seen, and has no price."""
    saving, least_ns = finding.saving_ns_per_step, NOTICED * run.step_ns
    low, likely, high = (ns if ns >= least_ns else 0 for ns in (saving.low, saving.likely, saving.high))
    return replace(finding, saving_ns_per_step=Saving(low, likely, high))


def _in_vain(alone: Finding, promised: Finding) -> bool:
    """Would the fix take time away, but none off the step?"""
    return bool(alone.saving_ns_per_step.likely) and not promised.saving_ns_per_step.high


def _ranked(found: Sequence[tuple[Rule, Finding]], run: Run, in_vain: Collection[str] = ()) -> tuple[Advice, ...]:
    """Largest saving first, fixes in vain last; a finding that vanishes when another is fixed hangs under that one."""
    order = sorted(found, key=lambda pair: (-pair[1].saving_ns_per_step.likely, pair[0].id in in_vain, pair[0].id))
    present = list(dict.fromkeys(rule.id for rule, _ in order))
    causes = {rule.id: _cause(rule, {rule.id: rule for rule, _ in order}, present) for rule, _ in order}
    ranked, number = [], 0
    for rule, finding in order:
        if causes[rule.id] != rule.id:
            continue
        number += 1
        cause_number = number
        symptoms = []
        for other, symptom in order:
            if other.id != rule.id and causes[other.id] == rule.id:
                number += 1
                symptoms.append(_advice(number, other, symptom, run, ()))
        ranked.append(_advice(cause_number, rule, finding, run, tuple(symptoms)))
    return tuple(ranked)


def _cause(rule: Rule, rules: Mapping[str, Rule], present: Sequence[str]) -> str:
    """The finding at the root: the cause of the cause, and so on. Of rules that name each other, the dearest."""
    seen = [rule.id]
    while True:
        above = next((each for each in present if each in rules[seen[-1]].symptom_of), None)
        if above is None:
            return seen[-1]
        if above in seen:
            return min(seen[seen.index(above) :], key=present.index)
        seen.append(above)


def _summary(rule: Rule, finding: Finding) -> str:
    return rule.summaries.get(finding.situation, rule.summary).format(**finding.values)


def _advice(rank: int, rule: Rule, finding: Finding, run: Run, symptoms: tuple[Advice, ...]) -> Advice:
    step_ns, saving = run.step_ns, finding.saving_ns_per_step
    certainty = judged(rule, finding, run)
    fitting = [fix for fix in rule.fixes if not fix.situations or finding.situation in fix.situations]
    return Advice(
        rank=rank,
        rule=rule.id,
        title=rule.title,
        summary=_summary(rule, finding),
        why=rule.why,
        category=rule.category,
        confidence=certainty.level,
        confidence_because=certainty.because,
        saving_ns_per_step=saving,
        speedup=(speedup(step_ns, saving.low), speedup(step_ns, saving.likely), speedup(step_ns, saving.high)),
        symptoms=symptoms,
        values=finding.values,
        evidence=(*finding.evidence, *moments(rule, finding, run)),
        fixes=tuple(Fix(fix.title, fix.how, fix.effort, fix.changes_numerics) for fix in fitting),  # type: ignore[arg-type]
        not_a_problem_when=rule.not_a_problem_when,
        references=rule.references,
    )


def _gpus(run: Run) -> tuple[GpuInfo, ...]:
    infos = [(place, place.info) for place in run.places if place.device is not None]
    return tuple(GpuInfo(p.rank, p.device or 0, info.name, peaks(p) is not None) for p, info in infos)


def _kernel_table(run: Run) -> tuple[KernelRow, ...]:
    """The kernels that cost most, all places together; times are inside the windows."""
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    for place in run.places:
        for frame in (place.kernels, place.collectives):
            ns = place.window.overlap_ns(frame.start_ns, frame.end_ns)
            codes, values = frame.name.codes, frame.name.values
            per_code = np.bincount(codes, minlength=len(values)), np.bincount(codes, weights=ns, minlength=len(values))
            for name, count, total in zip(values, *per_code, strict=True):
                if count:
                    counts[name] = counts.get(name, 0) + int(count)
                    totals[name] = totals.get(name, 0) + int(total)
    top = sorted(totals, key=lambda name: (-totals[name], name))[:_KERNEL_ROWS]
    return tuple(_kernel_row(name, counts[name], totals[name]) for name in top)


def _kernel_row(name: str, count: int, total_ns: int) -> KernelRow:
    family = kernel_names.family_or_communication(name)
    path = kernel_names.math_path(name) if family in MATMUL_FAMILIES else ""
    return KernelRow(name, family, path, count, total_ns, total_ns // max(count, 1))


def _all_notes(run: Run, seen: Sequence[tuple[Rule, Finding]], of_prediction: Iterator[str]) -> tuple[str, ...]:
    """Which part was looked at, what the readers say, and what the numbers rest on."""
    return (*selection_notes(run), *run.timeline.notes, *_notes(run), *_limit_notes(seen, run), *of_prediction)


def _notes(run: Run) -> Iterator[str]:
    timeline = run.timeline
    ranks = len(timeline.ranks)
    if timeline.world_size > ranks:
        yield f"{ranks} of {timeline.world_size} ranks were recorded: who waits for whom is only known among these."
    if not run.places and (len(timeline["memory_segments"]) or len(timeline["memory_changes"])):
        yield "Only memory was recorded: pass a trace of the same run beside it, and both are looked at."
        return
    if not run.places and not timeline.recorded.isdisjoint(MACHINE_SIGNALS):
        yield "Only what the machine tells was recorded: pass a trace of the run beside it, and both are looked at."
        return
    if not run.places and "kernel_profiles" in timeline.recorded:
        return  # the reader has said what single kernels tell, and what they do not
    if not run.places:
        yield "Nothing in this recording can be accounted for: no GPU activity and no framework ops were recorded."
        return
    if all(place.device is None for place in run.places):
        yield "No GPU activity was recorded: the training thread's own ops are taken as the work."
    if not run.per_step:
        yield (
            "No steps were found: times and savings are for the whole window. Mark steps with torch.profiler's step() "
            "or an NVTX range per iteration."
        )
    yield from _left_out(run)
    if len(timeline.kernels) and timeline.kernels["is_graph"].any():
        yield "CUDA graphs were recorded as a whole: the kernels inside them are counted as busy, but not told apart."


def _limit_notes(seen: Sequence[tuple[Rule, Finding]], run: Run) -> Iterator[str]:
    """What keeps savings below what detectors saw."""
    if any(rule.hidden_by_loader for rule, _ in seen) and unhidden_share(run) < 1:
        yield (
            "The loader is the limit: until input-wait is fixed, faster work on the GPU mostly waits longer. "
            "Other savings are promised accordingly."
        )
    spare_ns = run_spare_ns(run)
    if spare_ns is not None and any(
        rule.hidden_by_host and finding.saving_ns_per_step.likely >= spare_ns for rule, finding in seen
    ):
        share = 100 * spare_ns / max(run.step_ns, 1)
        yield (
            f"The host is nearly the limit: it could issue the same work in {share:.0f} % less time, no more. "
            "Savings on the GPU beyond that come true when the host has less to do."
        )


def _left_out(run: Run) -> Iterator[str]:
    steps = [place.steps for place in run.places if place.steps.used]
    if not steps:
        return
    warm_up = 0 if run.selection.range_name else max(each.warm_up for each in steps)
    partial = max(each.partial for each in steps)
    if warm_up:
        yield f"{warm_up} leading step{'s' * (warm_up > 1)} left out: much longer than the later ones (warm-up)."
    if partial:
        yield f"{partial} step{'s' * (partial > 1)} at the edge of the recording left out: only partly recorded."
