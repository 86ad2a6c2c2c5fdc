"""What does `perfdoctor.compare` return?"""

from __future__ import annotations

from perfdoctor.comparison import records
from perfdoctor.comparison.check import Check
from perfdoctor.comparison.records import Contribution, FindingChange, StepChange, Verdict


class Comparison:
    """What changed between two versions of a training. Made by `compare`.

    All numbers are of the mean step, or of an item (a sample, a token) where batches are known and differ.
    """

    def __init__(self, comparison: records.Comparison) -> None:
        self._comparison = comparison

    def __repr__(self) -> str:
        return f"<Comparison: {self.summary}>"

    @property
    def verdict(self) -> Verdict:
        """`slower`, `faster`, `no change`, `too noisy`, or `not comparable`, where it says nothing of the program; of
        snapshots of memory `less memory`, `more memory` or `no change`.
        """
        return self._comparison.verdict

    @property
    def summary(self) -> str:
        """The first line of a report: what became of the step, and between which bounds."""
        from perfdoctor.report.comparison import words  # noqa: PLC0415

        return words.verdict(self._comparison)

    @property
    def change(self) -> float:
        """After over before, less 1: -0.1 is 10 % shorter."""
        return self._comparison.judged.change

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `change`; None where a side has a single step."""
        judged: StepChange = self._comparison.judged
        return None if judged.low is None or judged.high is None else (judged.low, judged.high)

    @property
    def before_ns(self) -> int:
        """The mean step before, as recorded."""
        return self._comparison.before_ns

    @property
    def after_ns(self) -> int:
        """The mean step after, as recorded."""
        return self._comparison.after_ns

    @property
    def causes(self) -> tuple[Contribution, ...]:
        """What each part of the step brings to the difference: they sum to it exactly."""
        return self._comparison.causes

    @property
    def findings(self) -> tuple[FindingChange, ...]:
        """Which findings are fixed, new or remaining."""
        return self._comparison.findings

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out or is not certain, a sentence each."""
        return self._comparison.notes

    def to_json(self) -> str:
        """What `perfdoctor compare --json` writes (docs/json.md).

        Returns:
            JSON text. Keys are added in later versions, and never renamed.
        """
        from perfdoctor.report.comparison import json_report  # noqa: PLC0415

        return json_report.render(self._comparison)

    def to_markdown(self) -> str:
        """The report for a pull request.

        Returns:
            GitHub Markdown.
        """
        from perfdoctor.report.comparison import markdown  # noqa: PLC0415

        return markdown.render(self._comparison)

    def to_brief(self) -> str:
        """The report to be pasted where people ask for help: what `--format brief` prints.

        Returns:
            Less than 60 lines of plain text.
        """
        from perfdoctor.report.comparison import markdown  # noqa: PLC0415

        return markdown.brief(self._comparison)

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict and where the difference comes from.

        Returns:
            HTML that loads nothing and runs no script.
        """
        from perfdoctor.report.comparison import html  # noqa: PLC0415

        return html.cell(self._comparison)

    def to_html(self) -> str:
        """The report as a page, without the two timelines that `perfdoctor compare --html` has.

        Returns:
            One HTML page that loads nothing.
        """
        from perfdoctor.report.comparison import html  # noqa: PLC0415

        return html.render(self._comparison, {})


class CheckResult:
    """Is a training slower than its baseline by more than is allowed? Made by `check`."""

    def __init__(self, found: Check) -> None:
        self._check = found

    def __repr__(self) -> str:
        return f"<CheckResult: {self.summary}>"

    @property
    def failed(self) -> bool:
        """Is the step surely longer by more than the limit? Then the command exits with 3."""
        return self._check.failed

    @property
    def decision(self) -> str:
        """`regression`, `improvement`, `no change`, `too noisy`, or what else the command says."""
        return self._check.decision

    @property
    def summary(self) -> str:
        """The first line of a report."""
        from perfdoctor.report.check import words  # noqa: PLC0415

        return words.verdict(self._check)

    @property
    def runs_needed(self) -> int | None:
        """Runs on each side that would decide what is too noisy; None where it is decided, or none would do."""
        return self._check.runs_needed

    @property
    def comparison(self) -> Comparison:
        """The comparison behind it."""
        return Comparison(self._check.comparison)

    def to_json(self) -> str:
        """What `perfdoctor check --json` writes.

        Returns:
            JSON text. Keys are added in later versions, and never renamed.
        """
        from perfdoctor.report.comparison import json_report  # noqa: PLC0415

        return json_report.render_check(self._check)

    def to_markdown(self) -> str:
        """The comment for a pull request.

        Returns:
            GitHub Markdown.
        """
        from perfdoctor.report.check import github  # noqa: PLC0415

        return github.comment(self._check)
