"""What is wrong with this run, and what was not checked? Runs the rules and puts the diagnosis together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from perfdoctor.detectors import RuleError, detector
from perfdoctor.diagnosis import prediction
from perfdoctor.diagnosis.notes import notes, of_failed_rules
from perfdoctor.diagnosis.prediction import Question
from perfdoctor.diagnosis.ranking import agreeing, ranked, summary
from perfdoctor.diagnosis.records import Examination, Found
from perfdoctor.diagnosis.savings import PredictedSaving, as_predicted, predicted_saving
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.basis import basis_of
from perfdoctor.metrics.accounting.host_place import host_places, launches_gpu_work
from perfdoctor.metrics.accounting.job_time import job_time
from perfdoctor.metrics.accounting.prepare import prepare, step_stats
from perfdoctor.metrics.accounting.real_time import real_step_ns, real_time
from perfdoctor.metrics.accounting.split import split, split_of_all
from perfdoctor.metrics.framework import framework
from perfdoctor.metrics.frameworks import facts
from perfdoctor.metrics.host.batch_items import items_per_step
from perfdoctor.metrics.host.cpu_use import contended_share
from perfdoctor.metrics.kernels.kernel_table import kernel_table
from perfdoctor.metrics.kind_of_work import kind_of_work
from perfdoctor.metrics.memory.peak import memory_uses
from perfdoctor.metrics.work.device_peaks import peaks
from perfdoctor.metrics.work.efficiency import efficiency
from perfdoctor.metrics.work.modules import module_costs
from perfdoctor.model import by_several
from perfdoctor.model.run import Run
from perfdoctor.model.selection import WHOLE_RECORDING, Selection
from perfdoctor.model.timeline import Timeline
from perfdoctor.records.diagnosis import Diagnosis, GpuInfo, SourceInfo
from perfdoctor.records.findings import Advice, Finding, Outcome
from perfdoctor.records.predictions import CriticalPath, Prediction
from perfdoctor.records.savings import Saving
from perfdoctor.replay.graph.critical_path import critical_path
from perfdoctor.replay.what_if.savings import Replay, replay_of
from perfdoctor.vocabulary.rulebook import Rule

OnceRanked = Callable[[Run, Sequence[Advice]], None]
#: Of the critical path; what is further down is too short to be worth shortening.
MOST_PIECES = 12
#: Rules that take long where they apply: this one replays all steps.
_LONGEST = ("memory-headroom",)


def diagnose(
    timeline: Timeline, rules: Sequence[Rule], what_if: Sequence[Question] = (), selection: Selection = WHOLE_RECORDING
) -> Diagnosis:
    """Run every rule on a recording. A rule that raises becomes `failed`, and the others go on.

    `what_if`: the fixes to predict together, instead of the first ones found. `selection`: the part that is analysed.
    Raises as `prediction.answered` and `selection.narrowed` do.
    """
    return examine(prepare(timeline, selection), rules, what_if).diagnosis


def examine(
    run: Run, rules: Sequence[Rule], what_if: Sequence[Question] = (), *, once_ranked: OnceRanked | None = None
) -> Examination:
    """The same of a recording that was prepared before, for those who show findings on its timeline as well.

    What a finding of a rule that is not ours may still break costs its findings, and not the diagnosis.
    `once_ranked` is called as soon as the findings are known, before the prediction; again if they are found anew.
    """
    try:
        return _examined(run, rules, what_if, once_ranked)
    except PerfdoctorError:
        raise
    except Exception as error:
        others = {rule.id: error for rule in rules if rule.origin}
        if not others:
            raise
        alone = {rule.id: found for rule in rules if rule.origin and (found := _error_alone(run, rule)) is not None}
        try:
            return _examined(run, _without(rules, alone or others), what_if, once_ranked)
        except PerfdoctorError:
            raise
        except Exception:  # noqa: BLE001 what two of them break together
            return _examined(run, _without(rules, {**others, **alone}), what_if, once_ranked)


def _without(rules: Sequence[Rule], culprits: Mapping[str, Exception]) -> list[Rule]:
    """The same rules, of which these say why they were left out."""

    def broken(rule: Rule) -> Rule:
        return replace(rule, broken=rule.broken or f"its findings cannot be used: {_said(culprits[rule.id])}")

    return [broken(rule) if rule.id in culprits else rule for rule in rules]


def _error_alone(run: Run, rule: Rule) -> Exception | None:
    try:
        _examined(run, [rule], ())
    except Exception as error:  # noqa: BLE001 what its findings break
        return error
    return None


def _examined(
    run: Run, rules: Sequence[Rule], what_if: Sequence[Question], once_ranked: OnceRanked | None = None
) -> Examination:
    timeline, work = run.timeline, kind_of_work(run.timeline)
    rules = [rule.in_words_of(facts(run), without_gpu=bool(host_places(run))) for rule in rules]
    run.next_phase()
    ahead = _by_several(rules, run)
    outcomes, seen = ahead.applied if ahead else _applied(rules, run)
    seen = _without_savings_of_a_start(seen)
    replay = _replay(seen, run, is_asked_for=bool(what_if))
    run.next_phase()
    savings = ahead.savings if ahead else {}
    found = agreeing([_found(rule, finding, run, replay, savings.get(finding)) for rule, finding in seen])
    advice = ranked(found, run)
    if once_ranked:
        once_ranked(run, advice)
    predicted = (
        prediction.answered(what_if, advice, found, outcomes, run, replay)
        if what_if
        else prediction.predicted(advice, found, run, replay)
    )
    run.next_phase()
    basis = basis_of(run)
    diagnosis = Diagnosis(
        sources=tuple(SourceInfo(s.kind, s.file, s.tool_version, s.ranks, s.cut_off) for s in timeline.sources),
        gpus=_gpus(run),
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
        critical_path=(ahead.path if ahead else _critical_path(replay)) if replay else None,
        gpu_not_recorded=launches_gpu_work(run),
        processes=timeline.processes,
        items_per_step=items_per_step(run),
        contended_share=contended_share(run),
        **(ahead.numbers if ahead else _numbers(run)),
    )
    return Examination(run, diagnosis, tuple(found))


def predicted(examination: Examination, what_if: Sequence[Question]) -> Prediction:
    """The step with other fixes than the examination predicts. Raises as `prediction.answered` does."""
    run, diagnosis, found = examination.run, examination.diagnosis, examination.found
    replay = _replay([(each.rule, each.finding) for each in found], run, is_asked_for=True)
    return prediction.answered(what_if, diagnosis.findings, found, diagnosis.outcomes, run, replay)


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
    if len(run.ranks) > 1:
        have.add("ranks")
    needs = rule.needs_without_gpu if rule.needs_without_gpu and host_places(run) else rule.needs
    return tuple(need for need in needs if have.isdisjoint(need.split("|")))


def _numbers(run: Run) -> dict[str, Any]:
    """What a diagnosis says of the run whatever the rules find: by the fields of `Diagnosis`."""
    use = efficiency(run)
    return {
        "steps": step_stats(run.job),
        "time": tuple(split(place) for place in run.job.places),
        "recording": tuple(split_of_all(place) for place in run.places),
        "kernels": kernel_table(run),
        "memory": memory_uses(run.timeline),
        "efficiency": use,
        "modules": module_costs(run, use.peak_flop_per_second if use else None),
        "job": job_time(run),
    }


def _critical_path(replay: Replay | None) -> CriticalPath | None:
    return critical_path(replay.graphs, replay.unchanged, MOST_PIECES) if replay else None


_Applied = tuple[list[Outcome], list[tuple[Rule, Finding]]]


def _applied(rules: Sequence[Rule], run: Run) -> _Applied:
    """What became of every rule that is about such a program, and what they found."""
    applying = [rule for rule in rules if rule.applies(facts(run))]
    return _listed(applying, [_apply(rule, run) for rule in applying])


def _listed(rules: Sequence[Rule], found: Sequence[tuple[Outcome, list[Finding]]]) -> _Applied:
    outcomes = [outcome for outcome, _ in found]
    return outcomes, [(rule, each) for rule, (_, findings) in zip(rules, found, strict=True) for each in findings]


class _Ahead(NamedTuple):
    """What several processes have worked out. `savings`: of the findings as their rules found them."""

    applied: _Applied
    savings: Mapping[Finding, PredictedSaving]
    numbers: dict[str, Any]
    path: CriticalPath | None


def _by_several(rules: Sequence[Rule], run: Run) -> _Ahead | None:
    """None where one process is sooner. What needs a replay is with the rules: each process makes its own once."""
    if not by_several.is_worth_processes(run):
        return None
    applying = [rule for rule in rules if rule.applies(facts(run))]
    longest_first = sorted(applying, key=lambda rule: rule.id not in _LONGEST)
    done: list[Any] = by_several.each([
        *(partial(_with_savings, rule, run) for rule in longest_first),
        partial(_numbers, run),
        lambda: _critical_path(replay_of(run)),
    ], run)  # fmt: skip
    *of_rules, numbers, path = done
    by_rule = {rule.id: found for rule, found in zip(longest_first, of_rules, strict=True)}
    savings = {finding: saving for _, found in of_rules for finding, saving in found}
    applied = [(by_rule[rule.id][0], [finding for finding, _ in by_rule[rule.id][1]]) for rule in applying]
    return _Ahead(_listed(applying, applied), savings, numbers, path)


def _with_savings(rule: Rule, run: Run) -> tuple[Outcome, list[tuple[Finding, PredictedSaving]]]:
    outcome, findings = _apply(rule, run)
    return outcome, [(each, predicted_saving(rule, each, run, _replay([(rule, each)], run))) for each in findings]


def _without_savings_of_a_start(seen: Sequence[tuple[Rule, Finding]]) -> list[tuple[Rule, Finding]]:
    """Where a finding is the verdict on the whole recording, what it explains comes once too: it saves nothing."""
    once = {each for rule, finding in seen if finding.situation in rule.verdict for each in finding.explains}
    none = Saving(0, 0, 0)
    return [(rule, replace(found, saving_ns_per_step=none) if rule.id in once else found) for rule, found in seen]


def _apply(rule: Rule, run: Run) -> tuple[Outcome, list[Finding]]:
    outcome, findings = _outcome(rule, run)
    return (replace(outcome, origin=rule.origin.name) if rule.origin else outcome), findings


def _outcome(rule: Rule, run: Run) -> tuple[Outcome, list[Finding]]:
    if rule.broken:
        return Outcome(rule.id, "failed", error=rule.broken), []
    lacking = missing(rule, run)
    if lacking:
        return Outcome(rule.id, "skipped", lacking), []
    run.next_round()
    try:
        findings = list(detector(rule)(run, rule.at))
        for finding in findings:  # a placeholder that no value fills is the rule's fault, not the report's
            check_sentence(rule, finding, run)
    except Exception as error:  # noqa: BLE001 a defect in one rule must not cost the other answers
        return Outcome(rule.id, "failed", error=str(error) if isinstance(error, RuleError) else _said(error)), []
    return Outcome(rule.id, "found" if findings else "clear"), findings


def check_sentence(rule: Rule, finding: Finding, run: Run) -> None:
    """Has the finding what the rule's sentence names? Raises RuleError, or what a sentence of ours raises."""
    try:
        summary(rule, finding, run)
    except Exception as error:
        if not rule.origin:
            raise
        what = f"names {error.args[0]}, which the finding has not" if isinstance(error, KeyError) else f"has {error}"
        raise RuleError(f"{rule.id.rpartition('/')[2]}.toml: a sentence {what}") from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _found(rule: Rule, finding: Finding, run: Run, replay: Replay | None, saving: PredictedSaving | None) -> Found:
    saving = saving or predicted_saving(rule, finding, run, replay)
    return Found(rule, as_predicted(finding, saving), saving)


def _replay(seen: Sequence[tuple[Rule, Finding]], run: Run, *, is_asked_for: bool = False) -> Replay | None:
    """The run ready to be simulated, if a question or any finding asks for it; None where it cannot be."""
    has_savings = any(rule.action and finding.saving_ns_per_step.likely for rule, finding in seen)
    return replay_of(run) if is_asked_for or has_savings else None


def _gpus(run: Run) -> tuple[GpuInfo, ...]:
    infos = [(place, place.info) for place in run.places if place.device is not None]
    return tuple(GpuInfo(p.rank, p.device or 0, info.name, peaks(p) is not None) for p, info in infos)
