"""What does `perfdoctor.scaling` return?"""

from __future__ import annotations

from perfdoctor.comparison.records import FindingChange
from perfdoctor.comparison.scaling.records import Rung, ScalingResult


class ScalingSeries:
    """What one training gains from more GPUs. Made by `scaling`."""

    def __init__(self, result: ScalingResult) -> None:
        self._result = result

    def __repr__(self) -> str:
        return f"<ScalingSeries: {self.summary}>"

    @property
    def summary(self) -> str:
        """The first line of a report: how efficient the most GPUs are."""
        from perfdoctor.report.scaling import words  # noqa: PLC0415

        return words.verdict(self._result)

    @property
    def kind(self) -> str:
        """`weak` (each rank has the same work), `strong` (the ranks share it), or "" where neither is known."""
        return self._result.kind

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """Each number of ranks, the fewest first: its step, throughput, speed-up and efficiency."""
        return self._result.rungs

    @property
    def findings(self) -> tuple[FindingChange, ...]:
        """Which findings the most ranks have that the fewest have not, and the other way round."""
        return self._result.findings

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out or is not certain, a sentence each."""
        return self._result.notes

    def to_json(self) -> str:
        """What `perfdoctor compare --scaling --json` writes.

        Returns:
            JSON text. Keys are added in later versions, and never renamed.
        """
        from perfdoctor.report.comparison import json_report  # noqa: PLC0415

        return json_report.render_scaling(self._result)

    def to_markdown(self) -> str:
        """The report for an issue or a pull request.

        Returns:
            GitHub Markdown.
        """
        from perfdoctor.report.scaling import markdown  # noqa: PLC0415

        return markdown.render(self._result)

    def to_html(self) -> str:
        """The report as a page.

        Returns:
            One HTML page that loads nothing.
        """
        from perfdoctor.report.scaling import html  # noqa: PLC0415

        return html.render(self._result)
