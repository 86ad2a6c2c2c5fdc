"""How sure is a finding, and why? The detector's level, lowered where little was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.accounting.real_time import MOST_SHARE, real_time, stack_cost
from perfdoctor.metrics.communication.nodes import ranks_missing
from perfdoctor.metrics.host.cpu_use import contended_share
from perfdoctor.metrics.program import basis_of
from perfdoctor.model.steps import Confidence
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.signals import SIGNALS

if TYPE_CHECKING:
    from perfdoctor.model.run import Run
    from perfdoctor.vocabulary.rulebook import Rule

#: A median of fewer steps moves with each of them.
FEWEST_STEPS = 3
_LEVELS: tuple[Confidence, ...] = ("low", "medium", "high")
#: A rule that needs these alone speaks of moments, and needs no steps.
_STEPLESS = frozenset(name for name, signal in SIGNALS.items() if not signal.has_time)


class Certainty(Struct, frozen=True):
    """A level and its reason, a sentence: what was measured, on how much, and what speaks against it."""

    level: Confidence
    because: str


def judged(rule: Rule, finding: Finding, run: Run) -> Certainty:
    """The certainty of a finding, at most "medium" if steps are few, unsure or none, or profiling slowed the host."""
    if finding.run_steps:
        return _of_whole_run(rule, finding)
    # What was measured without a timeline has no steps to be unsure of.
    against = [] if not run.places or set(rule.needs) <= _STEPLESS else [*_against(run), *_of_missing_ranks(rule, run)]
    # Rules that say it are not in doubt by it.
    if "cpu_samples" not in rule.needs and host_places(run) and contended_share(run):
        against.append("other programs took the processor's cores meanwhile")
    if rule.category == "host":
        against += _of_recording(run)
    level = min(finding.confidence, "medium", key=_LEVELS.index) if against else finding.confidence
    if doubt := _doubt(rule, finding):
        against.insert(0, basis_of(run).prose(doubt))
    measured = f"Measured on {_amount(run)}" + (f" from {_signals(rule, run)}" if _signals(rule, run) else "")
    return Certainty(level, f"{measured}; {', and '.join(against)}." if against else f"{measured}.")


def _of_whole_run(rule: Rule, finding: Finding) -> Certainty:
    """The certainty of a finding about the whole run: how few steps were recorded is no doubt of it."""
    measured = f"Measured on all {finding.run_steps:,} steps of the run, and on samples of its stack"
    doubt = _doubt(rule, finding)
    return Certainty(finding.confidence, f"{measured}; {doubt}." if doubt else f"{measured}.")


def _doubt(rule: Rule, finding: Finding) -> str:
    """Why the detector itself is not sure, as half a sentence; "" where it is."""
    return "" if finding.confidence == "high" else rule.doubts.get(finding.doubt or finding.situation, rule.doubt)


def _against(run: Run) -> Iterator[str]:
    used = min((place.steps.used for place in run.places), default=0)
    if not run.per_step:
        sought = basis_of(run).sought
        yield f"no {sought} were found, so warm-up may be in it"
    elif used < FEWEST_STEPS:
        noun = basis_of(run).noun
        yield f"{used} {noun + ' is' if used == 1 else noun + 's are'} few"
    elif any(place.steps.confidence == "low" for place in run.places):
        yield basis_of(run).prose("where a step begins is not certain")


def _of_recording(run: Run) -> Iterator[str]:
    """A sentence if recording slowed the host: by how much, or only that stacks cost time."""
    real = real_time(run)
    if real is not None:
        if real.is_recorders:
            by = "recording made the step" if real.is_explained else "recorded steps were"
            yield f"{by} {real.recorders_stretch:.1f} times as long"
    elif stack_cost(run)[1] >= MOST_SHARE:
        yield "the profiler recorded Python stacks, which slows the host"


def _of_missing_ranks(rule: Rule, run: Run) -> Iterator[str]:
    """A sentence if ranks are missing: waiting for one of them cannot be separated from transfer."""
    missing, recorded = ranks_missing(run), len(run.ranks)
    if rule.category == "communication" and "collectives" in rule.needs and recorded > 1 and missing:
        were = "was" if missing == 1 else "were"
        yield (
            f"{missing} of {recorded + missing} ranks {were} not recorded, so waiting for one of them cannot be "
            "separated from transfer"
        )


def _amount(run: Run) -> str:
    steps = sum(place.steps.used for place in run.places) if run.per_step else 0
    ranks = len({place.rank for place in run.places})
    of_ranks = f" of {ranks} ranks" if ranks > 1 else ""
    noun = basis_of(run).noun
    return f"{steps} {noun}{'s' * (steps != 1)}{of_ranks}" if steps else f"the whole recording{of_ranks}"


def _signals(rule: Rule, run: Run) -> str:
    """The recorded signals that the rule needs (all of them if it needs none): `kernels and ranges`."""
    needs = rule.needs_without_gpu if rule.needs_without_gpu and host_places(run) else rule.needs
    needed = dict.fromkeys(each for need in needs for each in need.split("|"))
    named = [each for each in needed if each in SIGNALS] or SIGNALS
    words = list(dict.fromkeys(SIGNALS[each].label for each in named if len(run.timeline[each])))
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
