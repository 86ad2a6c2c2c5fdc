"""What must hold of whatever is made of a stranger's file?"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Timeline
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Outcome, with_symptoms
from perfdoctor.vocabulary.parts import IDLE_CAUSES

#: No event lies further from the others, in ns: the sums of all parts stay below 2^63.
_MOST_NS = 1 << 62
#: Of a note or an error: names of a stranger are in them, shortened.
_MOST_CHARACTERS = 20_000


class WrongError(Exception):
    """Something that no file may lead to."""


def hold(is_so: bool, what: str) -> None:
    """Raise WrongError where it is not so."""
    if not is_so:
        raise WrongError(what)


def check_error(error: PerfdoctorError) -> None:
    """Raise WrongError where it does not say in two lines what happened and what to do."""
    for line in (error.what, error.do):
        hold(0 < len(line) < _MOST_CHARACTERS, f"an error of {len(line)} characters")


def check_timeline(timeline: Timeline) -> None:
    """Raise WrongError or AssertionError where columns are not those that are declared, or times are none."""
    timeline.self_check()
    for signal, rows in timeline.frames.items():
        if len(rows):
            least, most = int(rows.start_ns.min()), int(rows.end_ns.max())
            hold(-_MOST_NS < least <= most < _MOST_NS, f"{signal} from {least} to {most}")
            hold(float(np.sum(rows.duration_ns, dtype=np.float64)) < _MOST_NS, f"{signal} take too long together")
    for note in timeline.notes:
        hold(len(note) < _MOST_CHARACTERS, f"a note of {len(note)} characters")


def check(diagnosis: Diagnosis) -> None:
    """Raise WrongError where parts do not sum, a number is negative or above the whole, or a rule failed."""
    for split in (*diagnosis.time, *diagnosis.recording):
        parts = (split.compute_ns, split.exposed_communication_ns, split.exposed_copy_ns, split.idle_ns)
        hold(sum(parts) == split.window_ns, f"parts {parts} of a window of {split.window_ns}")
        hold(set(split.idle_causes_ns) <= set(IDLE_CAUSES), "unknown causes")
        hold(sum(split.idle_causes_ns.values()) == split.idle_ns, "causes do not sum to the idle time")
        hold(split.hidden_communication_ns + split.exposed_communication_ns == split.communication_ns, "communication")
        for each in (
            *parts,
            *split.idle_causes_ns.values(),
            split.communication_ns,
            split.hidden_communication_ns,
            split.copy_ns,
        ):
            hold(0 <= each <= split.window_ns < _MOST_NS, f"{each} of a window of {split.window_ns}")
        for families in (split.compute_by_family_ns, split.compute_by_phase_ns):
            hold(all(each >= 0 for each in families.values()), f"families {families}")
        hold(split.step_ns is None or split.step_ns > 0, f"a step of {split.step_ns}")
        hold(split.kernel_count >= 0, "kernels")
    for kernel in diagnosis.kernels:
        hold(kernel.count > 0 and kernel.total_ns >= 0 and kernel.mean_ns >= 0, f"{kernel}")
    steps = diagnosis.steps
    hold(0 <= steps.p10_ns <= steps.median_ns <= steps.p90_ns and 0 <= steps.used <= steps.count, f"{steps}")
    for advice in with_symptoms(diagnosis.findings):
        saving = advice.saving_ns_per_step
        most = diagnosis.base_ns if advice.basis == "step" else advice.run_ns
        hold(
            0 <= saving.low <= saving.likely <= saving.high <= max(most, diagnosis.base_ns),
            f"{advice.rule}: {saving} of {diagnosis.base_ns}",
        )
        hold(0 <= advice.saved.low <= advice.saved.high <= most, f"{advice.rule}: {advice.saved} of {most}")
    failed = [outcome for outcome in diagnosis.outcomes if outcome.status == "failed"]
    hold(not failed, f"{_failed(failed)}")
    hold(0 <= diagnosis.contended_share <= 1, "share of contention")


def _failed(outcomes: Iterable[Outcome]) -> str:
    return "; ".join(f"{outcome.rule} failed: {outcome.error}" for outcome in outcomes)
