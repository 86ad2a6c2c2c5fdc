"""Which pages does a report have? Each is made separately, so that one that fails does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module

from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Chart, Heat, Table, TimelineView, Views
from perfdoctor.vocabulary.pages import PAGES

View = Table | Chart | Heat | TimelineView


def views(run: Run, diagnosis: Diagnosis) -> Views:
    """All pages for which something was recorded: `view(run, diagnosis)` of a page's module yields its contents."""
    made: list[View] = []
    failed: list[tuple[str, str]] = []
    for name in PAGES:
        module = f"perfdoctor.views.pages.{name}"
        try:
            view: Callable[[Run, Diagnosis], Iterable[View]] = import_module(module).view
            made.extend(view(run, diagnosis))
        except Exception as error:  # noqa: BLE001 a defect of one page must not affect the others
            failed.append((name, f"{type(error).__name__}: {error}"))
    return Views(
        tables=tuple(_of(Table, made)),
        charts=tuple(_of(Chart, made)),
        heats=tuple(_of(Heat, made)),
        timeline=next(_of(TimelineView, made), None),
        failed=tuple(failed),
    )


def _of(kind: type, made: Iterable[View]) -> Iterator:  # type: ignore[type-arg]
    return (each for each in made if isinstance(each, kind))
