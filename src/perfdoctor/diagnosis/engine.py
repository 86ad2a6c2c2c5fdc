"""What is wrong with this run, and what was not checked? Runs the rules and puts the diagnosis together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from perfdoctor.detectors import RuleError, detector
from perfdoctor.diagnosis import prediction
from perfdoctor.diagnosis.advisable import advisable
from perfdoctor.diagnosis.answers import answered
from perfdoctor.diagnosis.notes import notes, of_failed_rules
from perfdoctor.diagnosis.predicted_saving import PredictedSaving, as_predicted, predicted_saving
from perfdoctor.diagnosis.questions import Question
from perfdoctor.diagnosis.ranking import agreeing, outweighed, ranked, summary
from perfdoctor.diagnosis.records import Examination, Found
from perfdoctor.errors import PerfdoctorError
from perfdoctor.hardware.peaks import peaks_of
from perfdoctor.metrics.accounting.host_place import host_places, launches_gpu_work
from perfdoctor.metrics.accounting.prepare import prepare, step_stats
from perfdoctor.metrics.accounting.real_time import real_step_ns, real_time
from perfdoctor.metrics.accounting.split import job_time, split, split_of_all
from perfdoctor.metrics.accounting.timed_steps import timed_steps
from perfdoctor.metrics.communication.by_use import collective_uses
from perfdoctor.metrics.counters.means import gpu_metrics
from perfdoctor.metrics.counters.samples import tell_anything
from perfdoctor.metrics.host.batch_items import items_per_step
from perfdoctor.metrics.host.cpu_use import contended_share
from perfdoctor.metrics.kernels.costs import TABLE_ROWS, kernel_rows
from perfdoctor.metrics.kernels.kernel_limits import sections_missing
from perfdoctor.metrics.kernels.whole_graphs import MOSTLY_GRAPHS, whole_graphs_share
from perfdoctor.metrics.memory.peak import memory_uses
from perfdoctor.metrics.program import basis_of, facts, framework, kind_of_work
from perfdoctor.metrics.whole_run.partition import run_time
from perfdoctor.metrics.work.device_peaks import peaks_of_device
from perfdoctor.metrics.work.efficiency import efficiency
from perfdoctor.metrics.work.modules import module_costs
from perfdoctor.model.run import WHOLE_RECORDING, Run, Selection
from perfdoctor.model.timeline import Device, Timeline
from perfdoctor.records.diagnosis import Diagnosis, GpuInfo, SourceInfo
from perfdoctor.records.findings import Finding, Outcome
from perfdoctor.records.predictions import Prediction
from perfdoctor.records.savings import Saving
from perfdoctor.replay.graph.critical_path import critical_path
from perfdoctor.replay.what_if.run_replay import replay_of
from perfdoctor.vocabulary.kinds import PROFILE_SECTIONS
from perfdoctor.vocabulary.rulebook import Rule

#: Of the critical path; what is further down is too short to be worth shortening.
MOST_PIECES = 12
#: Rules that take long where they apply: this one replays all steps.
_LONGEST = ("memory-headroom",)


def diagnose(
    timeline: Timeline, rules: Sequence[Rule], what_if: Sequence[Question] = (), selection: Selection = WHOLE_RECORDING
) -> Diagnosis:
    """Run every rule on a recording. A rule that raises becomes `failed`, and the others go on.

    `what_if`: the fixes to predict together, instead of the first ones found. `selection`: the part that is analysed.
    Raises as `answers.answered` and `selection.narrowed` do.
    """
    return examine(prepare(timeline, selection), rules, what_if).diagnosis


def examine(run: Run, rules: Sequence[Rule], what_if: Sequence[Question] = ()) -> Examination:
    """Diagnose a recording that was prepared before, for callers that also show findings on its timeline.

    An error that a finding of a user's rule still raises costs that rule's findings, and not the diagnosis.
    """
    try:
        return _examined(run, rules, what_if)
    except PerfdoctorError:
        raise
    except Exception as error:
        others = {rule.id: error for rule in rules if rule.origin}
        if not others:
            raise
        alone = {rule.id: found for rule in rules if rule.origin and (found := _error_alone(run, rule)) is not None}
        try:
            return _examined(run, _without(rules, alone or others), what_if)
        except PerfdoctorError:
            raise
        except Exception:  # noqa: BLE001 what two of them break together
            return _examined(run, _without(rules, {**others, **alone}), what_if)


def _without(rules: Sequence[Rule], culprits: Mapping[str, Exception]) -> list[Rule]:
    """The rules, with the culprits replaced by ones that say why they were left out."""
    why = {rule_id: f"its findings cannot be used: {_said(error)}" for rule_id, error in culprits.items()}
    return [replace(rule, broken=rule.broken or why[rule.id]) if rule.id in why else rule for rule in rules]


def _error_alone(run: Run, rule: Rule) -> Exception | None:
    try:
        _examined(run, [rule], ())
    except Exception as error:  # noqa: BLE001 what its findings break
        return error
    return None


def _examined(run: Run, rules: Sequence[Rule], what_if: Sequence[Question]) -> Examination:
    timeline, work = run.timeline, kind_of_work(run.timeline)
    rules = [rule.in_words_of(facts(run), without_gpu=bool(host_places(run))) for rule in rules]
    outcomes, seen, numbers = _seen(rules, run)
    # What a verdict on the whole recording explains happens once, and saves nothing.
    once = {each for one in seen if one.finding.situation in one.rule.verdict for each in one.finding.explains}
    seen = [_without_saving(each, run) if each.rule.id in once else each for each in seen]
    replay = replay_of(run) if what_if or any(_is_replayed(each.rule, each.finding) for each in seen) else None
    seen = outweighed([replace(each, finding=as_predicted(each.finding, each.saving)) for each in seen], run)
    found = agreeing([_advised(each, run) for each in seen])
    advice = ranked(found, run)
    predicted = (
        answered(what_if, advice, found, outcomes, run, replay)
        if what_if
        else prediction.predicted(advice, found, run, replay)
    )
    basis = basis_of(run)
    diagnosis = Diagnosis(
        sources=tuple(SourceInfo(s.kind, s.file, s.tool_version, s.ranks, s.cut_off) for s in run.job.timeline.sources),
        gpus=tuple(_gpus(run)),
        world_size=max(timeline.world_size, len(run.ranks)),
        outcomes=tuple(outcomes),
        findings=advice,
        prediction=predicted,
        notes=(*notes(run, found), *prediction.notes(predicted, run, replay), *of_failed_rules(outcomes)),
        base_ns=real_step_ns(run),
        real_time=real_time(run),
        basis=basis,
        kind_of_work=work.kind,
        server=work.server,
        framework=framework(timeline),
        titles={rule.id: basis.prose(rule.title) for rule in rules},
        critical_path=critical_path(replay.graphs, replay.unchanged, MOST_PIECES) if replay else None,
        gpu_not_recorded=launches_gpu_work(run),
        processes=timeline.processes,
        items_per_step=items_per_step(run),
        contended_share=contended_share(run),
        run_time=run_time(run),
        gpu_metrics=gpu_metrics(run),
        collectives=collective_uses(run),
        timed=timed_steps(run),
        project=timeline.project,
        **numbers,
    )
    return Examination(run, diagnosis, tuple(found))


def _gpus(run: Run) -> Iterator[GpuInfo]:
    """The GPUs of all places; without any, those of a memory snapshot, or on which Nsight Compute measured kernels."""
    known: dict[Device, bool] = {}  # thousands of ranks have one kind of GPU
    for on in run.job.places:
        if on.device is not None:
            kind = replace(on.info, rank=0, device=0)
            if kind not in known:
                known[kind] = peaks_of_device(kind, run.timeline.user_values) is not None
            yield GpuInfo(on.rank, on.device, on.info.name, known[kind])
    uses = memory_uses(run.timeline) if not run.places else ()
    yield from (GpuInfo(use.rank, use.device, "", known_peaks=False) for use in uses)
    profiles = run.timeline["kernel_profiles"]
    names = sorted(set(profiles.text("gpu")) - {""}) if len(profiles) and not run.places and not uses else []
    yield from (GpuInfo(0, number, name, peaks_of(name) is not None) for number, name in enumerate(names))


def predicted(examination: Examination, what_if: Sequence[Question]) -> Prediction:
    """The step with other fixes than the examination predicts. Raises as `answers.answered` does."""
    run, diagnosis, found = examination.run, examination.diagnosis, examination.found
    return answered(what_if, diagnosis.findings, found, diagnosis.outcomes, run, replay_of(run))


def missing(rule: Rule, run: Run) -> tuple[str, ...]:
    """What the rule needs and the recording lacks; `a|b` is met by either.

    Beside the signals: "steps" (steps were found), "places" (there is something to account for), "ranks" (several), and
    the sections of Nsight Compute's report.
    """
    have = set(run.timeline.recorded)
    # Too few samples, or those of another GPU or time, show nothing; those of DCGM count.
    have.discard("gpu_counters")
    if any(map(tell_anything, run.places)):
        have.add("gpu_counters")
    if run.places:
        have.add("places")
    if any(len(place.collectives) for place in run.places):  # on a run without a GPU, those of the host
        have.add("collectives")
    if run.per_step:
        have.add("steps")
    if len(run.ranks) > 1:
        have.add("ranks")
    if run.timeline.whole_runs:
        have.add("whole_run")
    if whole_graphs_share(run) <= MOSTLY_GRAPHS:
        have.add("single_kernels")
    # Without any measured kernel it is those that are missing, and not their sections.
    have |= set(PROFILE_SECTIONS) - set(sections_missing(run.timeline) if len(run.timeline["kernel_profiles"]) else ())
    needs = rule.needs_without_gpu if rule.needs_without_gpu and host_places(run) else rule.needs
    return tuple(need for need in needs if have.isdisjoint(need.split("|")))


def _numbers(run: Run) -> dict[str, Any]:
    """The fields of `Diagnosis` that do not depend on what the rules find."""
    use = efficiency(run)
    return {
        "steps": step_stats(run.job),
        "time": tuple(split(place) for place in run.job.places),
        "recording": tuple(split_of_all(place) for place in run.places),
        "kernels": kernel_rows(run.places, TABLE_ROWS),
        "memory": memory_uses(run.job.timeline),
        "efficiency": use,
        "modules": module_costs(run, use.peak_flop_per_second if use else None),
        "job": job_time(run),
    }


def _seen(rules: Sequence[Rule], run: Run) -> tuple[list[Outcome], list[Found], dict[str, Any]]:
    """The outcome of every rule about such a program, what they found, and the numbers of the run."""
    applying = [rule for rule in rules if rule.applies(facts(run))]
    longest_first = sorted(applying, key=lambda rule: rule.id not in _LONGEST)
    done: list[Any] = run.several([*(partial(_checked, rule, run) for rule in longest_first), partial(_numbers, run)])
    *checked, numbers = done
    by_rule = {rule.id: each for rule, each in zip(longest_first, checked, strict=True)}
    outcomes = [by_rule[rule.id][0] for rule in applying]
    return outcomes, [Found(rule, *each) for rule in applying for each in by_rule[rule.id][1]], numbers


def _checked(rule: Rule, run: Run) -> tuple[Outcome, list[tuple[Finding, PredictedSaving]]]:
    """The outcome of the rule, and each of its findings with what it saves."""
    outcome, findings = _outcome(rule, run)
    replays = [replay_of(run) if _is_replayed(rule, each) else None for each in findings]
    savings = [predicted_saving(rule, each, run, replay) for each, replay in zip(findings, replays, strict=True)]
    outcome = replace(outcome, origin=rule.origin.name) if rule.origin else outcome
    return outcome, list(zip(findings, savings, strict=True))


def _is_replayed(rule: Rule, finding: Finding) -> bool:
    return bool(rule.action and finding.saving_ns_per_step.likely)


def _advised(found: Found, run: Run) -> Found:
    """The finding with the fixes that are of use here. Where none is it saves nothing; its sentence says its cost."""
    found = replace(found, advisable=advisable(found, run))
    return _without_saving(found, run) if found.advisable and found.advisable.is_in_vain else found


def _without_saving(found: Found, run: Run) -> Found:
    finding = replace(found.finding, saving_ns_per_step=Saving(0, 0, 0))
    return replace(found, finding=finding, saving=predicted_saving(found.rule, finding, run, None))


def _outcome(rule: Rule, run: Run) -> tuple[Outcome, list[Finding]]:
    if rule.broken:
        return Outcome(rule.id, "failed", error=rule.broken), []
    lacking = missing(rule, run)
    if lacking:
        return Outcome(rule.id, "skipped", lacking), []
    try:
        findings = list(detector(rule)(run, rule.at))
        for finding in findings:  # a placeholder that no value fills is the rule's fault, not the report's
            check_sentence(rule, finding, run)
    except Exception as error:  # noqa: BLE001 a defect in one rule must not cost the other answers
        return Outcome(rule.id, "failed", error=str(error) if isinstance(error, RuleError) else _said(error)), []
    if not findings and _cannot_see(rule, run):
        return Outcome(rule.id, "skipped", ("single_kernels",)), []
    return Outcome(rule.id, "found" if findings else "clear"), findings


def _cannot_see(rule: Rule, run: Run) -> bool:
    """Would it need the kernels that are inside CUDA graphs? What it found in the others it found all the same."""
    by_names = rule.category == "kernels" and "kernels" in rule.needs
    return by_names and whole_graphs_share(run) > MOSTLY_GRAPHS


def check_sentence(rule: Rule, finding: Finding, run: Run) -> None:
    """Check that the finding has what the rule's sentence names. Raises RuleError for a sentence of a user's rule."""
    try:
        summary(rule, finding, run)
    except Exception as error:
        if not rule.origin:
            raise
        what = f"names {error.args[0]}, which the finding has not" if isinstance(error, KeyError) else f"has {error}"
        raise RuleError(f"{rule.id.rpartition('/')[2]}.toml: a sentence {what}") from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
