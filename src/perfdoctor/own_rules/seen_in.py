"""What does a rule find in a recording of its author's, and which rules of ours are about the same kernels there?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.diagnosis.engine import missing
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline
from perfdoctor.own_rules.tried import found_in, tried
from perfdoctor.records.findings import Advice, Finding
from perfdoctor.vocabulary.rulebook import Rule, load_rules
from perfdoctor.vocabulary.signals import need_label

#: A threshold of such a name is the least that is worth a line; without it a rule says what it would have found.
_LEAST = "min_"
#: Next to nothing, of shares as of counts: at 0 a rule would find what is not there at all.
_ANY = 1e-9


def notes(rule: Rule, name: str, recording: Timeline) -> Iterator[str]:
    """A line for the recording, and one for each rule of ours that finds most of the same kernels."""
    run = prepare(recording)
    if lacking := missing(rule, run):
        yield f"{name}: skipped, it lacks {', '.join(map(need_label, lacking))}"
        return
    found = tried(rule, run)
    if found.findings:
        yield f"{name}: found: {_said(found.advice)}"
        yield from (f"{name}: {text}" for text in _also_ours(found.findings, run))
        return
    below = tried(rule, run, dict.fromkeys((each for each in rule.thresholds if each.startswith(_LEAST)), _ANY))
    yield f"{name}: below its threshold: {_said(below.advice)}" if below.findings else f"{name}: nothing found"


def _said(advice: Sequence[Advice]) -> str:
    return " ".join(
        f"{each.summary} Saves {each.saving_ns_per_step.low / 1e6:.1f} to {each.saving_ns_per_step.high / 1e6:.1f} ms."
        for each in advice
    )


def _also_ours(findings: Sequence[Finding], run: Run) -> Iterator[str]:
    """A rule that needs what was not recorded finds nothing."""
    if not any(finding.work for finding in findings):
        return
    for rule in load_rules().values():
        shares = [_same_share(finding, other, run) for finding in findings for other in found_in(rule, run)]
        if max(shares, default=0) > MOST_OF_IT:
            yield (
                f"{rule.id}, a rule of perfdoctor, is about {max(shares):.0%} of the time of the same kernels: name it "
                "in symptom_of or explains, or see whether it says enough"
            )


def _same_share(finding: Finding, other: Finding, run: Run) -> float:
    """Of the time of the kernels that the finding names, the share of those that the other one names as well."""
    both_ns = own_ns = 0
    for place in run.places:
        count, no_rows = len(place.kernels), place.kernel_ns < 0
        rows = finding.work.get(place.rank_and_device, no_rows)
        theirs = other.work.get(place.rank_and_device, no_rows)
        if rows.size != count:
            continue
        own_ns += int(place.kernel_ns[rows].sum())
        if theirs.size in (count, count + len(place.copies)):  # those of `fused` have the copies behind
            both_ns += int(place.kernel_ns[rows & theirs[:count]].sum())
    return both_ns / own_ns if own_ns else 0.0
