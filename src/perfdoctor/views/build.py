"""Which pages does a report have? Each is made separately, so that one that fails does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module

from msgspec.structs import replace

from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Chart, Heat, Icicle, Table, TimelineView, Views
from perfdoctor.vocabulary.basis import Basis
from perfdoctor.vocabulary.categories import PAGES

View = Table | Chart | Heat | Icicle | TimelineView
#: Contents of a page, and the error that ended it: "" if nothing failed.
Page = tuple[Sequence[View], str]

#: Takes as long as all others together.
_LONGEST = "timeline"


def views(run: Run, diagnosis: Diagnosis) -> Views:
    """All pages for which something was recorded: `view(run, diagnosis)` of a page's module yields its contents."""
    longest_first = sorted(PAGES, key=lambda name: name != _LONGEST)
    made = run.several([partial(_page, name, run, diagnosis) for name in longest_first])
    pages = dict(zip(longest_first, made, strict=True))
    shown = [view for name in PAGES for view in pages[name][0]]
    return Views(
        tables=tuple(_of(Table, shown)),
        charts=tuple(_of(Chart, shown)),
        heats=tuple(_of(Heat, shown)),
        icicles=tuple(_of(Icicle, shown)),
        timeline=next(_of(TimelineView, shown), None),
        failed=tuple((name, error) for name in PAGES if (error := pages[name][1])),
    )


def _page(name: str, run: Run, diagnosis: Diagnosis) -> Page:
    found: list[View] = []
    try:
        view: Callable[[Run, Diagnosis], Iterable[View]] = import_module(f"perfdoctor.views.pages.{name}").view
        found.extend(_worded(each, diagnosis.basis) for each in view(run, diagnosis))
    except Exception as error:  # noqa: BLE001 a defect of one page must not affect the others
        return found, f"{type(error).__name__}: {error}"
    return found, ""


def _worded(view: View, basis: Basis) -> View:
    """Put headings and explanations of `view` into words that fit the basis; cells stay as they are."""
    if isinstance(view, TimelineView):
        return view
    if isinstance(view, Icicle):
        return replace(view, title=basis.numbers(view.title), explained=basis.numbers(view.explained))
    if not isinstance(view, Table):
        return replace(view, title=basis.numbers(view.title), description=basis.numbers(view.description))
    columns = (
        replace(each, name=basis.numbers(each.name), explained=basis.numbers(each.explained)) for each in view.columns
    )
    title, explained = basis.numbers(view.title), basis.numbers(view.explained)
    return replace(view, title=title, explained=explained, columns=tuple(columns))


def _of(kind: type, shown: Iterable[View]) -> Iterator:  # type: ignore[type-arg]
    return (each for each in shown if isinstance(each, kind))
