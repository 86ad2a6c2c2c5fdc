"""How is progress shown? On standard error: as lines with --verbose, as a bar on a terminal, else not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perfdoctor.cli import say
from perfdoctor.system.progress import BYTES, Progress, ProgressText, silent

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import Task

_BAR_WIDTH = 20
_MOST_TEXT = 48


@contextmanager
def progress(*, quiet: bool, verbose: bool) -> Iterator[Progress]:
    """The function to call with progress. Nothing is shown if `quiet`, or if standard error is no terminal."""
    if verbose:
        yield _lines()
    elif quiet or not sys.stderr.isatty():
        yield silent
    else:
        from perfdoctor.system.forked import pausing

        with _bars() as bars, pausing(lambda: _still(bars)):
            yield _shown_in(bars)


@contextmanager
def _still(bars: Bars) -> Iterator[None]:
    """Stop the bars inside, with the thread that draws them."""
    bars.stop()
    try:
        yield
    finally:
        bars.start()


def _lines() -> Callable[[str], None]:
    from perfdoctor.report.words.foreign_text import clean_name

    last = ""

    def show(text: str) -> None:
        nonlocal last
        if text != last:  # the same file, and more bytes of it
            say.line(clean_name(text), err=True)
        last = text

    return show


def _shown_in(bars: Bars) -> Callable[[str], None]:
    """Show progress in one line of `bars`: a new work takes the place of the one before it."""
    from perfdoctor.report.words.foreign_text import clean_name

    task = bars.add_task("starting", total=None)
    work = ""

    def show(text: str) -> None:
        nonlocal task, work
        reached = text if isinstance(text, ProgressText) else None
        begun = reached.work if reached else text
        if begun != work:
            bars.remove_task(task)
            task = bars.add_task("", total=None)
            work = begun
        if reached:
            bars.update(task, total=reached.of, completed=reached.done, unit=reached.unit)
        bars.update(task, description=clean_name(text))

    return show


def _bars() -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, ProgressColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars
    from rich.table import Column
    from rich.text import Text

    class OfCounted(ProgressColumn):
        """A column that is empty where nobody knows how much there is to do."""

        def __init__(self, column: ProgressColumn) -> None:
            super().__init__()
            self._column = column

        def render(self, task: Task) -> Text:
            return Text("") if task.total is None else self._column(task)  # type: ignore[return-value]

    class Amount(DownloadColumn):
        def render(self, task: Task) -> Text:
            if task.fields.get("unit", BYTES) == BYTES:
                return super().render(task)
            return Text(f"{task.completed:,.0f}/{task.total or 0:,.0f} {task.fields['unit']}")

    return Bars(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, max_width=_MOST_TEXT)),
        OfCounted(BarColumn(_BAR_WIDTH)),
        OfCounted(Amount()),
        OfCounted(TimeRemainingColumn(compact=True)),
        console=Console(stderr=True),
        transient=True,
    )
