"""Does a replay of the step shorten what a finding is about? Else its saving is another one, and nothing raises."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.replay.edits.actions import WORK_SIGNALS, affected_ns
from perfdoctor.vocabulary.rulebook import Rule

#: A finding's time is a sum of whole ns that was divided by steps and places.
_AS_GOOD_AS_ALL = 0.99


def problems(rule: Rule, finding: Finding, run: Run) -> Iterator[str]:
    """As half lines that begin with the finding. Only findings that save time are replayed."""
    if not finding.saving_ns_per_step.likely:
        return
    if not rule.action and finding.work:
        yield (
            f'its finding names {_signal(finding, run)}, and the document has no action = "{_signal(finding, run)}": '
            "without it no replay of the step limits the saving"
        )
    elif rule.action in WORK_SIGNALS and not finding.work and not finding.changes:
        all_ns = affected_ns(rule.action, replace(finding, affected_ns=0), run)
        about_ns = finding.affected_ns or finding.saving_ns_per_step.high
        if about_ns < _AS_GOOD_AS_ALL * all_ns:
            yield (
                f"its finding is about {about_ns / 1e6:.3g} ms and names no rows: a replay shortens all "
                f"{' and '.join(WORK_SIGNALS[rule.action])}, {all_ns / 1e6:.3g} ms a step. Give it "
                "work={place.rank_and_device: rows for each place}, or take action out of the document"
            )


def _signal(finding: Finding, run: Run) -> str:
    """Whose rows its masks fit; kernels where they fit several."""
    sizes = {place.rank_and_device: place for place in run.places}
    fitting = (
        signal
        for signal in ("kernels", "copies", "collectives")
        if all(mask.size == len(getattr(sizes[key], signal)) for key, mask in finding.work.items())
    )
    return next(fitting, "kernels")
