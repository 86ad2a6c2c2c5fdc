"""What does `perfdoctor.analyze` return?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfdoctor.api.arguments import AnyQuestions, in_words_of_python, questions
from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Ints, Timeline
from perfdoctor.records import predictions
from perfdoctor.records.diagnosis import GpuInfo, SourceInfo
from perfdoctor.records.findings import Advice, Outcome, with_symptoms
from perfdoctor.records.time_split import KernelRow, StepStats, TimeSplit

#: Of places that an error names.
_LISTED = 8

if TYPE_CHECKING:
    from perfdoctor.comparison.records import Snapshot
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.vocabulary.rulebook import Rule


class Diagnosis:
    """What is wrong with a run, what to change, and what that brings. Made by `analyze`.

    In a notebook it is shown with its findings and the parts of the step.
    """

    def __init__(self, examination: Examination, name: str = "", paths: Sequence[Path] = ()) -> None:
        self._examination, self._name, self._paths = examination, name, tuple(paths)

    def _snapshot(self) -> Snapshot:
        """What a comparison knows of it."""
        from perfdoctor.comparison.snapshot import of_examination  # noqa: PLC0415

        return of_examination(self._name, self._examination, self._known, self._paths)

    @property
    def _known(self) -> dict[str, Rule]:
        """All rules of ours, and those of others that found something."""
        from perfdoctor.vocabulary.rulebook import load_rules  # noqa: PLC0415

        return {**load_rules(), **{each.rule.id: each.rule for each in self._examination.found}}

    def __repr__(self) -> str:
        findings = ", ".join(advice.rule for advice in self.findings)
        return f"<Diagnosis of {self._name}: {self.verdict} Findings: {findings or 'none'}>"

    @property
    def verdict(self) -> str:
        """The first line of a report: the costliest finding and its predicted saving, or why there is none."""
        from perfdoctor.report.words.wording import verdict  # noqa: PLC0415

        return verdict(self._examination.diagnosis)

    @property
    def findings(self) -> tuple[Advice, ...]:
        """The ranked causes, costliest first; their symptoms are inside, in `Advice.symptoms`."""
        return self._examination.diagnosis.findings

    def find(self, rule: str) -> Advice | None:
        """The first finding of a rule, also among symptoms.

        Args:
            rule: The id of the rule, as `"input-wait"`.

        Returns:
            The finding; None where the rule found nothing.
        """
        return next((advice for advice in with_symptoms(self.findings) if advice.rule == rule), None)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of each rule. Skipped, as the recording lacks what it needs, does not mean clear."""
        return self._examination.diagnosis.outcomes

    @property
    def unit(self) -> str:
        """What numbers "per step" are for one of: `step`, `iteration`, `execution`; "" for all that was recorded."""
        return self._examination.diagnosis.basis.noun

    @property
    def step_ns(self) -> int:
        """The length of the step of which savings are a share: without a recorder, where that is known."""
        return self._examination.diagnosis.base_ns

    @property
    def steps(self) -> StepStats:
        """How the steps were found, and how long they are."""
        return self._examination.diagnosis.steps

    def step_spans_ns(self, rank: int | None = None, device: int | None = None) -> Ints:
        """When each analysed step of one device began and ended, on the timeline's clock.

        >>> spans = perfdoctor.analyze("run/").step_spans_ns()
        >>> spans.shape, bool((spans[:, 1] > spans[:, 0]).all())
        ((7, 2), True)

        Args:
            rank: The rank; the first one that was analysed, if not given.
            device: The index of the GPU; the first one of that rank, if not given.

        Returns:
            Start and end in ns: int64, of shape (steps, 2). No rows where no steps were found.

        Raises:
            PerfdoctorError: Nothing of that rank and device was analysed, as of ranks that were not read in full.
        """
        places = self._examination.run.places
        wanted = (each for each in places if rank in (None, each.rank) and device in (None, each.device))
        place = next(wanted, None)
        if place is None:
            known = ", ".join(f"rank {each.rank}, device {each.device}" for each in places[:_LISTED])
            more = ", …" if len(places) > _LISTED else ""
            raise PerfdoctorError(
                f"nothing was analysed of rank {rank}, device {device}", do=f"There are: {known or 'none'}{more}."
            )
        steps = place.steps
        spans: Ints = np.stack([steps.bounds[:-1], steps.ends_ns], axis=1)[steps.first : steps.last]
        return spans

    @property
    def time(self) -> tuple[TimeSplit, ...]:
        """Where the time of each rank and device went, in the analysed steps: parts that sum up exactly."""
        return self._examination.diagnosis.time

    @property
    def kernels(self) -> tuple[KernelRow, ...]:
        """All executions of each kernel's name in the analysed steps, longest first."""
        return self._examination.diagnosis.kernels

    @property
    def prediction(self) -> Prediction | None:
        """The step with all worthwhile fixes, or with those that `what_if` asked for; None without any."""
        found = self._examination.diagnosis.prediction
        return Prediction.of(found) if found is not None else None

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs that were recorded."""
        return self._examination.diagnosis.gpus

    @property
    def world_size(self) -> int:
        """How many ranks the job has; more than were recorded, maybe."""
        return self._examination.diagnosis.world_size

    @property
    def sources(self) -> tuple[SourceInfo, ...]:
        """The files that were read."""
        return self._examination.diagnosis.sources

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out or is not certain, a sentence each."""
        return self._examination.diagnosis.notes

    @property
    def timeline(self) -> Timeline:
        """What was read, as `read` returns it; of a job of many ranks only those that were read in full."""
        return self._examination.run.timeline

    def what_if(self, asked: AnyQuestions) -> Prediction:
        """The step with exactly these findings fixed together, simulated on the recording; nothing is read again.

        >>> prediction = perfdoctor.analyze("run/").what_if("input-wait=50%")
        >>> prediction.step_ns[1] < prediction.now_ns
        True

        Args:
            asked: Fixes of what was found (`"input-wait"`, `"launch-bound=50%"`, `"fp32-matmuls=bf16"`), or another
                size of the run (`"batch=2x"`, `"ranks=8"`, `"synthetic-data"`). Several are a list, or a mapping:
                `{"launch-bound": "50%"}`.

        Returns:
            The predicted step, in ns.

        Raises:
            PerfdoctorError: That cannot be simulated.
        """
        from perfdoctor.diagnosis.engine import predicted  # noqa: PLC0415

        with in_words_of_python():
            return Prediction.of(predicted(self._examination, questions(asked, self._known)))

    def to_json(self) -> str:
        """What `--json` writes (docs/json.md).

        Returns:
            JSON text. Keys are added in later versions, and never renamed.
        """
        from perfdoctor.report import json_report  # noqa: PLC0415

        return json_report.render(self._examination.diagnosis)

    def to_markdown(self) -> str:
        """The report for an issue or a pull request.

        Returns:
            GitHub Markdown.
        """
        from perfdoctor.report import markdown  # noqa: PLC0415

        return markdown.render(self._examination.diagnosis)

    def to_brief(self) -> str:
        """The report to be pasted where people ask for help: what `--format brief` prints.

        Returns:
            Less than 60 lines of plain text.
        """
        from perfdoctor.report import brief  # noqa: PLC0415

        return brief.render(self._examination.diagnosis)

    def _repr_html_(self) -> str:
        """What a notebook shows: the findings and the parts of the step.

        Returns:
            HTML that loads nothing and runs no script.
        """
        from perfdoctor.report import html  # noqa: PLC0415

        return html.cell(self._examination.diagnosis)

    def to_html(self) -> str:
        """The whole report with its timeline and tables.

        Returns:
            One HTML page that loads nothing.
        """
        from perfdoctor.report import html  # noqa: PLC0415
        from perfdoctor.views.build import views  # noqa: PLC0415

        run, diagnosis = self._examination.run, self._examination.diagnosis
        return html.render(diagnosis, views(run, diagnosis))


class Prediction(predictions.Prediction, frozen=True, kw_only=True):
    __doc__ = predictions.Prediction.__doc__

    @classmethod
    def of(cls, found: predictions.Prediction) -> Prediction:
        """The same, as other programs see it."""
        return cls(**{name: getattr(found, name) for name in found.__struct_fields__})

    def _repr_html_(self) -> str:
        """What a notebook shows: the step after each fix, and the range of the last.

        Returns:
            HTML that loads nothing and runs no script.
        """
        from perfdoctor.report import html  # noqa: PLC0415

        return html.prediction_cell(self)
