"""What may a rule of one's own import? This module, and nothing else of perfdoctor: all of it is described in
docs/own-rules.md, with shapes and units, and changes as the rest of the public API does.

A detector gets a `Run` of `Place`s and yields `Finding`s:

    def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]: ...

`at` has the values of the thresholds in the rule's document. Times are integer nanoseconds, sizes are bytes, shares are
from 0 to 1, "a step" is one step of the training, on the mean of all places (the whole window where none were found).
"""

from __future__ import annotations

from perfdoctor.detectors.affected import Affected, affected
from perfdoctor.detectors.of_idle import Idle, of_cause, of_idle
from perfdoctor.detectors.of_work import Work, of_collectives, of_copies, of_kernels
from perfdoctor.detectors.saved_shares import NO_SAVING, Shares, at_most, half_certain, shares
from perfdoctor.metrics.accounting.behind_idle import Culprit
from perfdoctor.metrics.units import mib, ms, percent, us
from perfdoctor.model.cache import once_per_place, once_per_run
from perfdoctor.model.columns import UNKNOWN, Floats, Ints, Mask, Text
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launch_known, launched_in
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.steps import Confidence, Steps
from perfdoctor.model.timeline import Device, Frame, Timeline
from perfdoctor.records.findings import Evidence, Finding, Measure, Rows, Span, Value
from perfdoctor.records.savings import Saving

__all__ = [
    "NO_SAVING", "UNKNOWN", "Affected", "Confidence", "Culprit", "Device", "Evidence", "Finding", "Floats", "Frame",
    "Idle", "Intervals", "Ints", "Mask", "Measure", "Place", "Rows", "Run", "Saving", "Shares", "Span", "Steps", "Text",
    "Timeline", "Value", "Work", "affected", "at_most", "half_certain", "launch_known", "launched_in", "mib", "ms",
    "of_cause", "of_collectives", "of_copies", "of_idle", "of_kernels", "once_per_place", "once_per_run", "percent",
    "shares", "us",
]  # fmt: skip
