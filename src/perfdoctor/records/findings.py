"""What was found, how sure are we, and what is there to do about it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from perfdoctor.model.steps import Confidence
from perfdoctor.model.timeline import Ints, Mask
from perfdoctor.records.savings import Saving

Status = Literal["found", "clear", "skipped", "failed"]
Value = int | float | str
#: What `--what-if` can ask beside rules: another size of the run.
SIZES = ("batch", "ranks", "synthetic-data")


@dataclass(frozen=True)
class Measure:
    """One number that convinces. `unit`: ns, bytes, bytes_per_second, count, share."""

    label: str
    value: float
    unit: Literal["ns", "bytes", "bytes_per_second", "count", "share"]


@dataclass(frozen=True)
class Rows:
    """A small table: the worst offenders. `units`, one a column: ns, bytes, bytes_per_second, count, share, text."""

    label: str
    columns: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Span:
    """One stretch of the recording to look at; times are ns since the first event of the window."""

    label: str
    rank: int
    start_ns: int
    end_ns: int


Evidence = Measure | Rows | Span


@dataclass(frozen=True)
class Fix:
    """What to change. `how` is text with code to paste."""

    title: str
    how: str
    effort: Literal["minutes", "hours", "days"]
    changes_numerics: bool


@dataclass(frozen=True, eq=False)
class Finding:
    """What a detector saw: numbers only. `situation` picks the words and fixes that fit the evidence ("" for all).

    `symptom_of` names the rules whose fix makes just this finding vanish, beside those that its rule names; `explains`
    is its other end: the rules whose findings vanish with this one, where only this one's detector knows that. `work`
    tells which of a place's kernels, copies or collectives it is about: by (rank, device), one bool a row of the
    place's frame. Empty where it is about all of them, or none. `affected_ns` is the time of that work a step of which
    the saving is a share, 0 where all of it counts; `bound_ns` the most that can be saved of it, whatever is changed:
    the remaining work needs the rest (None: not known). `thread_time`: on a run without a GPU, by rank, starts and ends
    of the training thread's time that it is about. A finding equals itself alone.
    """

    rule: str
    saving_ns_per_step: Saving
    confidence: Confidence
    values: Mapping[str, Value]
    evidence: tuple[Evidence, ...] = ()
    situation: str = ""
    symptom_of: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    work: Mapping[tuple[int, int], Mask] = field(default_factory=dict)
    affected_ns: int = 0
    bound_ns: int | None = None
    thread_time: Mapping[int, tuple[Ints, Ints]] = field(default_factory=dict)


@dataclass(frozen=True)
class Advice:
    """A finding with its rule's words, ranked: what a report shows. `rank` starts at 1.

    `confidence` is the detector's, lowered where the recording is thin; `confidence_because` says why in a sentence.
    """

    rank: int
    rule: str
    title: str
    summary: str
    why: str
    category: str
    confidence: Confidence
    confidence_because: str
    saving_ns_per_step: Saving
    speedup: tuple[float, float, float]
    symptoms: tuple[Advice, ...]
    values: Mapping[str, Value]
    evidence: tuple[Evidence, ...]
    fixes: tuple[Fix, ...]
    not_a_problem_when: str
    references: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one rule. `missing`: the signals it lacked (skipped); `error`: what it raised (failed)."""

    rule: str
    status: Status
    missing: tuple[str, ...] = ()
    error: str | None = None
