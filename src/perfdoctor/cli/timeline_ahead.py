"""The timeline takes as long as all other pages together: another process draws it while the diagnosis is completed."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perfdoctor.model.run import Run
    from perfdoctor.records.findings import Advice
    from perfdoctor.views.build import Page


class TimelineAhead:
    """A timeline that may be begun before there is a diagnosis. No process is left when this context ends."""

    def __init__(self) -> None:
        self._child = contextlib.ExitStack()
        #: Waits for the page of the timeline; None where it was not begun.
        self.page: Callable[[], Page] | None = None

    def __enter__(self) -> TimelineAhead:  # noqa: PYI034 Self is younger than our oldest Python
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def begin(self, run: Run, findings: Sequence[Advice]) -> None:
        """Begin, where a second process is worth while. The findings are those of the diagnosis to come."""
        from perfdoctor.model import by_several
        from perfdoctor.system import beside

        self._child.close()
        if by_several.is_worth_processes(run):
            self.page = self._child.enter_context(beside.begun(partial(_page, run, findings)))


def _page(run: Run, findings: Sequence[Advice]) -> Page:
    from perfdoctor.report import embedded
    from perfdoctor.views.build import made
    from perfdoctor.views.pages.timeline import timeline_of

    return made(lambda: [embedded.packed_timeline(each) for each in [timeline_of(run, findings)] if each])
