"""What does `perfdoctor.analyze` return?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfdoctor.api.arguments import AnyPath, AnyQuestions, in_words_of_python, questions
from perfdoctor.api.listing import Listing
from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Frame, Ints, Timeline
from perfdoctor.records import predictions
from perfdoctor.records.diagnosis import Diagnosis as Record
from perfdoctor.records.diagnosis import GpuInfo, SourceInfo
from perfdoctor.records.findings import Advice, Outcome, with_symptoms
from perfdoctor.records.predictions import CriticalPath
from perfdoctor.records.time_split import KernelRow, StepStats, TimeSplit
from perfdoctor.records.work_done import Efficiency, ModuleCost
from perfdoctor.vocabulary.nearest import near

#: Of places that an error names.
_LISTED = 8

if TYPE_CHECKING:
    from perfdoctor.comparison.records import Snapshot
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.records.query_result import QueryResult
    from perfdoctor.vocabulary.rulebook import Rule


class Diagnosis:
    """What is wrong with a run, what to change, and what that brings. Made by `analyze`.

    In a notebook it is shown with its findings and the parts of the step.
    """

    def __init__(
        self, found: Examination | Record, name: str = "", paths: Sequence[Path] = (), process: int | None = None
    ) -> None:
        self._diagnosis = found if isinstance(found, Record) else found.diagnosis
        self._examined = None if isinstance(found, Record) else found
        self._name, self._paths, self._process = name, tuple(paths), process

    @property
    def _examination(self) -> Examination:
        if self._examined is None:
            raise PerfdoctorError(
                f"{self._name} holds a diagnosis without its recording",
                do="Analyze the recording for its timeline, tables, simulations, spans of steps and page.",
            )
        return self._examined

    def _snapshot(self) -> Snapshot:
        """What a comparison knows of it."""
        from perfdoctor.comparison.snapshot import of_document, of_examination  # noqa: PLC0415
        from perfdoctor.report.json_document import document  # noqa: PLC0415

        if self._examined is None and (written := document(self._name, self._paths[0])) is not None:
            return of_document(self._name, written, self._known)
        return of_examination(self._name, self._examination, self._known, self._paths)

    @property
    def _known(self) -> dict[str, Rule]:
        """All rules of ours, and those of others that found something."""
        from perfdoctor.vocabulary.rulebook import load_rules  # noqa: PLC0415

        return {
            **load_rules(),
            **{each.rule.id: each.rule for each in (self._examined.found if self._examined else ())},
        }

    def __repr__(self) -> str:
        findings = ", ".join(advice.rule for advice in self.findings)
        return f"<Diagnosis of {self._name}: {self.verdict} Findings: {findings or 'none'}>"

    @property
    def verdict(self) -> str:
        """The first line of a report: the costliest finding and its predicted saving, or why there is none."""
        from perfdoctor.report.words.wording import verdict  # noqa: PLC0415

        return verdict(self._diagnosis)

    @property
    def findings(self) -> tuple[Advice, ...]:
        """The ranked causes, costliest first; their symptoms are inside, in `Advice.symptoms`."""
        return Listing(self._diagnosis.findings)

    def find(self, rule: str) -> Advice | None:
        """The first finding of a rule, also among symptoms.

        Args:
            rule: The id of the rule, as `"input-wait"`.

        Returns:
            The finding; None where the rule found nothing: `outcomes` say whether it could be checked.

        Raises:
            PerfdoctorError: There is no such rule.
        """
        applied = {each.rule for each in self.outcomes}
        if rule not in applied and rule not in self._known:
            do = near(str(rule), sorted(applied | self._known.keys()))
            raise PerfdoctorError(f"there is no rule {rule!r}", do=do)
        return next((advice for advice in with_symptoms(self.findings) if advice.rule == rule), None)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of each rule. Skipped, as the recording lacks what it needs, does not mean clear."""
        return Listing(self._diagnosis.outcomes)

    @property
    def unit(self) -> str:
        """What numbers "per step" are for one of: `step`, `iteration`, `execution`; "" for all that was recorded."""
        return self._diagnosis.basis.noun

    @property
    def step_ns(self) -> int:
        """The length of the step of which savings are a share: without a recorder, where that is known."""
        return self._diagnosis.base_ns

    @property
    def steps(self) -> StepStats:
        """How the steps were found, and how long they are."""
        return self._diagnosis.steps

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
        return Listing(self._diagnosis.time)

    @property
    def kernels(self) -> tuple[KernelRow, ...]:
        """All executions of each kernel's name in the analysed steps, longest first."""
        return Listing(self._diagnosis.kernels)

    @property
    def modules(self) -> tuple[ModuleCost, ...]:
        """What each module of the model costs, the costliest by themselves first; empty where none was recorded."""
        return Listing(self._diagnosis.modules)

    @property
    def efficiency(self) -> Efficiency | None:
        """MFU, HFU and the roofline; None where nothing is known of it."""
        return self._diagnosis.efficiency

    @property
    def critical_path(self) -> CriticalPath | None:
        """The work that determines the length of the step; None where the run was not replayed."""
        return self._diagnosis.critical_path

    @property
    def prediction(self) -> Prediction | None:
        """The step with all worthwhile fixes, or with those that `what_if` asked for; None without any."""
        found = self._diagnosis.prediction
        return Prediction.of(found) if found is not None else None

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs that were recorded."""
        return self._diagnosis.gpus

    @property
    def world_size(self) -> int:
        """How many ranks the job has; more than were recorded, maybe."""
        return self._diagnosis.world_size

    @property
    def sources(self) -> tuple[SourceInfo, ...]:
        """The files that were read."""
        return self._diagnosis.sources

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out or is not certain, a sentence each."""
        return self._diagnosis.notes

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

    def table(self, name: str) -> Frame:
        """One of the tables of docs/tables.md, with the columns that SQL and Parquet have.

        >>> kernels = perfdoctor.analyze("run/").table("kernels")
        >>> len(kernels["step_id"]) == len(kernels)
        True

        Args:
            name: The table: `"kernels"`, `"steps"`, `"idle"`, `"findings"`. Views are asked for with `query`.

        Returns:
            The rows. −1 is a whole number that is not known, NaN any other one, "" a text.

        Raises:
            PerfdoctorError: There is no such table, or the recording is not at hand.
        """
        from perfdoctor.export.tables.contents import RecordingTables  # noqa: PLC0415
        from perfdoctor.vocabulary.spellings import table_hint  # noqa: PLC0415
        from perfdoctor.vocabulary.tables import tables  # noqa: PLC0415

        with in_words_of_python():
            if name not in tables():
                raise PerfdoctorError(f"there is no table {name!r}", do=table_hint(str(name), tables()))
            made = RecordingTables(self._examination.run, lambda: self._diagnosis).columns(name)
            # A copy: what was made is kept, and others read it.
            return Frame({column: made[column]() for column in tables()[name].columns}).take(slice(None))

    def query(self, sql: str, *, limit: int | None = None, seconds: float = 60.0) -> QueryResult:
        """The answer to a question in SQL, as of `perfdoctor query`.

        >>> answer = perfdoctor.analyze("run/").query("SELECT count(*) AS n FROM kernels")
        >>> answer.columns, len(answer.rows)
        (('n',), 1)

        Args:
            sql: One question: SELECT … on the tables of docs/tables.md.
            limit: At most so many rows; all, if not given.
            seconds: How long the question may take.

        Returns:
            Columns and rows.

        Raises:
            PerfdoctorError: The question is not understood, takes too long, or the recording is not at hand.
        """
        from perfdoctor.export.tables.query import ALL, query  # noqa: PLC0415

        with in_words_of_python():
            return query(self._examination, sql, limit=limit or ALL, seconds=seconds)

    def export(
        self,
        *,
        sqlite: AnyPath | None = None,
        parquet: AnyPath | None = None,
        arrow: AnyPath | None = None,
        perfetto: AnyPath | None = None,
        tables: str | Sequence[str] = (),
    ) -> None:
        """Write the timeline and the findings, as `perfdoctor export` does.

        >>> perfdoctor.analyze("run/").export(sqlite="train.db")

        Args:
            sqlite: A database with all tables and views; one that was written before is replaced.
            parquet: A folder for one Parquet file a table.
            arrow: An Arrow file of all events, or of the one table.
            perfetto: A trace for ui.perfetto.dev.
            tables: Only these tables.

        Raises:
            PerfdoctorError: Something lies there, cannot be written, or there is no such table.
        """
        from perfdoctor.api.exports import export  # noqa: PLC0415

        with in_words_of_python():
            only = (tables,) if isinstance(tables, str) else tuple(tables)
            export(self._examination, sqlite, parquet, arrow, perfetto, only)

    def save(self, *, db: AnyPath | None = None) -> str:
        """Store the run in the history, as `perfdoctor analyze --save` does.

        >>> len(perfdoctor.analyze("run/").save(db="history.db"))
        12

        Args:
            db: The file of the history; that of the project around the working directory, if not given.

        Returns:
            The id of the run, as `runs` has it.

        Raises:
            PerfdoctorError: The history cannot be written, or the recording is not at hand.
        """
        from perfdoctor.api.earlier_runs import stored  # noqa: PLC0415

        with in_words_of_python():
            return stored(self._examination, self._paths, self._process, self.verdict, db)

    def to_json(self) -> str:
        """What `--json` writes (docs/json.md).

        Returns:
            JSON text. Keys are added in later versions, and never renamed.
        """
        from perfdoctor.report import json_report  # noqa: PLC0415

        return json_report.render(self._diagnosis)

    def to_markdown(self) -> str:
        """The report for an issue or a pull request.

        Returns:
            GitHub Markdown.
        """
        from perfdoctor.report import markdown  # noqa: PLC0415

        return markdown.render(self._diagnosis)

    def to_brief(self) -> str:
        """The report to be pasted where people ask for help: what `--format brief` prints.

        Returns:
            Less than 60 lines of plain text.
        """
        from perfdoctor.report import brief  # noqa: PLC0415

        return brief.render(self._diagnosis)

    def _repr_html_(self) -> str:
        """What a notebook shows: the findings and the parts of the step.

        Returns:
            HTML that loads nothing and runs no script.
        """
        from perfdoctor.report import html  # noqa: PLC0415

        return html.cell(self._diagnosis)

    def to_html(self) -> str:
        """The whole report with its timeline and tables.

        Returns:
            One HTML page that loads nothing.
        """
        from perfdoctor.report import html  # noqa: PLC0415
        from perfdoctor.views.build import views  # noqa: PLC0415

        run, diagnosis = self._examination.run, self._diagnosis
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
