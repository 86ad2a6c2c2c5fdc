"""What was found, with which confidence, and how is it fixed?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct, field

from perfdoctor.model.steps import Confidence
from perfdoctor.model.timeline import Floats, Ints, Mask
from perfdoctor.records.savings import Derivation, Range, Saving
from perfdoctor.vocabulary.names.python_code import first_user_function

Status = Literal["found", "clear", "skipped", "failed"]
Value = int | float | str
#: What `--what-if` accepts besides rules: another size of the run.
SIZES = ("batch", "ranks", "synthetic-data")


class Measure(Struct, frozen=True, tag_field="type", tag="measure"):
    """One number as evidence. `unit`: ns, bytes, bytes_per_second, count, share."""

    label: str
    value: int | float
    unit: Literal["ns", "bytes", "bytes_per_second", "count", "share"]


class Rows(Struct, frozen=True, tag_field="type", tag="rows"):
    """A small table, costliest rows first. `units`, one a column: ns, bytes, bytes_per_second, count, share, text."""

    label: str
    columns: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


class Span(Struct, frozen=True, tag_field="type", tag="span"):
    """A moment of the recording as evidence; times are ns since the first event of the window.

    That is the earliest `TimeSplit.window_start_ns` of all ranks and devices: add it for the timeline's clock.
    """

    label: str
    rank: int
    start_ns: int
    end_ns: int


Evidence = Measure | Rows | Span


class CodeLine(Struct, frozen=True):
    """A line of the user's own code in the time that a finding is about, as stacks show it.

    `samples`: how many showed it, `share`: of all samples of that time. `text`: its statement when it was recorded, at
    most five lines, empty if not kept. `is_worker`: a loader's worker was in it, not the training thread.
    `is_function`: stacks were recorded and not sampled, so `line` is where the function begins, `samples` is 0, and of
    that time the function took `time_ns` a step (of all that was analysed, without steps) and `share`, without what
    other functions of the user's took inside it.
    `is_loop`: the line runs a library's loop over the steps, and none of the user's own inside it takes the time.
    """

    file: str
    line: int
    function: str
    samples: int
    share: float
    text: tuple[str, ...] = ()
    is_worker: bool = False
    is_function: bool = False
    time_ns: int = 0
    is_loop: bool = False


class Fix(Struct, frozen=True):
    """What to change. `how` is text with code to paste.

    `caution`: what it needs that the recording does not show to be there, and where it was measured to hurt; "" for
    nothing.
    """

    title: str
    how: str
    effort: Literal["minutes", "hours", "days"]
    changes_numerics: bool
    caution: str = ""


class KernelChanges(Struct, frozen=True, eq=False):
    """What a fix does to each kernel of a place; arrays of (low, likely, high) × kernels, cases of what is saved.

    `shorter`: which share of its time goes, less than 0 where it gets longer. `host_ns`: what the fix adds to the
    host's time in front of its launch.
    """

    shorter: Floats
    host_ns: Floats


class Finding(Struct, frozen=True, eq=False):
    """What a detector found: numbers only. `situation` selects the sentences and fixes that fit ("" for all).

    `symptom_of`: rules of which this finding is a symptom, in addition to those in its rule's document. `explains` is
    the opposite: rules whose findings are symptoms of this one, if only this detector can know that. `work` selects the
    kernels, copies or collectives that the finding is about: by (rank, device), one bool for each row of the place's
    frame; empty if it is about all of them, or none. `affected_ns`: the time of that work per step of which the saving
    is a share, 0 where all of it counts; `bound_ns`: the most that any change can save of it, as the remaining work
    needs the rest (None: unknown). `thread_time`: on a run without a GPU, by rank, starts and ends of the training
    thread's time that the finding is about. `waits`: the blocking calls that a fix takes away, one bool a row of
    `timeline.calls`; None: all behind which the device is idle. `sources`: where a value of the formula comes from, one
    of `vocabulary.derivations.SOURCES`, if here it is not what the rule's document says; `formula`: which of the rule's
    formulas it is, and `doubt`: which of its doubts, if not those of its situation.
    `changes`: by (rank, device), what the fix does to each kernel, where that differs from one to the other; then
    `affected_ns` is the time of all that change. `if_longer`: the situation if the step gets longer with the fix, as
    simulated. `if_less`: of a verdict, the situation if another finding is about more than this share of the step;
    None: it is one whatever else is found. `lines_in`: (rank, idle cause), where the lines of code behind it are,
    if not in the idle time of the rule's own action. `stands_alone`: it is no symptom of what its rule's document
    names. `run_ns`, `run_steps`: of a finding about the whole run, how long the training took from its first step to
    its last, and how many steps that were: its saving is spread over them. `lines`: the lines of code, where the
    finding knows them itself. `measured_gain_ns`: of launches that were measured without a timeline, what
    they lose of their own time at the most: nothing is known of a program's, and it puts such findings in order.
    `by_all_ranks`: its saving is that of a replay of all ranks together already.
    A finding equals itself alone.
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
    waits: Mask | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    formula: str = ""
    doubt: str = ""
    changes: Mapping[tuple[int, int], KernelChanges] = field(default_factory=dict)
    if_longer: str = ""
    if_less: tuple[str, float] | None = None
    lines_in: tuple[tuple[int, str], ...] = ()
    stands_alone: bool = False
    run_ns: int = 0
    run_steps: int = 0
    lines: tuple[CodeLine, ...] = ()
    measured_gain_ns: int = 0
    by_all_ranks: bool = False


class Advice(Struct, frozen=True, kw_only=True):
    """A ranked finding with its rule's texts, as a report shows it. `rank` starts at 1 and counts symptoms as well.

    `symptom_of`: the rule of its cause, None for a cause. `is_verdict`: its summary is what a report says first,
    although it saves no time. `basis`: "run" where the finding is about the whole run and not about its recorded steps;
    then `saving_ns_per_run` is saved of the `run_ns` that the training took, and `saving_ns_per_step` is that, spread
    over all steps. `confidence` is the detector's, lowered where little was recorded; `confidence_because`
    gives the reasons. `derivation`: how its saving was computed; None where it saves no time. `lines`: of the user's
    own code, most first. `left_out`: fixes that would fit and are of no use here, each with the reason. `origin`: the
    folder of a rule that does not come with perfdoctor, else "".
    """

    rank: int
    rule: str
    origin: str = ""
    title: str
    summary: str
    category: str
    confidence: Confidence
    confidence_because: str
    saving_ns_per_step: Saving
    speedup: Range[float]
    symptoms: tuple[Advice, ...]
    symptom_of: str | None = None
    is_verdict: bool = False
    derivation: Derivation | None = None
    values: Mapping[str, Value]
    evidence: tuple[Evidence, ...]
    lines: tuple[CodeLine, ...] = ()
    fixes: tuple[Fix, ...]
    left_out: tuple[str, ...] = ()
    why: str
    not_a_problem_when: str
    references: tuple[str, ...]
    basis: Literal["step", "run"] = "step"
    saving_ns_per_run: Saving | None = None
    run_ns: int = 0

    @property
    def saved(self) -> Saving:
        """The saving as it is shown: of the run, where the finding is about the whole run."""
        return self.saving_ns_per_run or self.saving_ns_per_step

    def __repr__(self) -> str:
        """One line: all of its fields are pages."""
        saving = self.saving_ns_per_step
        return f"<Advice {self.rule}: {self.title}, saves {saving.likely:,} ns ({saving.low:,} to {saving.high:,})>"


def own_line(advice: Advice) -> str:
    """The first line of the user's own code that the finding names, `train.py(10): forward`; "" if none."""
    if advice.lines:
        first = advice.lines[0]
        return f"{first.file}({first.line}): {first.function}"
    return first_user_function(each.rows for each in advice.evidence if isinstance(each, Rows))


def with_symptoms(findings: Iterable[Advice]) -> Iterator[Advice]:
    """Each finding, with its symptoms, and theirs, behind it."""
    for advice in findings:
        yield advice
        yield from with_symptoms(advice.symptoms)


class Outcome(Struct, frozen=True):
    """The result of one rule. `missing`: the signals it lacked (skipped); `error`: what it raised (failed).

    `origin`: the folder of a rule that does not come with perfdoctor, "" for one that does.
    """

    rule: str
    status: Status
    missing: tuple[str, ...] = ()
    error: str | None = None
    origin: str = ""
