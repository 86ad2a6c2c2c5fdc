"""What is worked out once and asked for often? Results kept with the place, run or timeline that they are about.

    @once_per_place
    def launches(place: Place) -> Launches: ...

The second call with the same place (and the same further arguments, which must be hashable) returns the first result.
It is kept under the function itself, so no two can take the same name, and it lives as long as its place, run or
timeline: `replace(place, …)` makes another place, which begins empty. Results are shared: do not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from perfdoctor.model.place import Place
    from perfdoctor.model.run import Run
    from perfdoctor.model.timeline import Timeline

#: Results by function and further arguments.
Kept = dict[tuple[Callable[..., Any], Hashable], Any]

_Place = TypeVar("_Place", bound="Place")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class _Keeps(Protocol):
    """Whatever results are about."""

    @property
    def kept(self) -> Kept: ...


_Subject = TypeVar("_Subject", bound=_Keeps)


def once_per_place(
    function: Callable[Concatenate[_Place, _Arguments], _Result],
) -> Callable[Concatenate[_Place, _Arguments], _Result]:
    """The function, computed once for each place and further arguments."""
    return _once(function)


def once_per_run(
    function: Callable[Concatenate[Run, _Arguments], _Result],
) -> Callable[Concatenate[Run, _Arguments], _Result]:
    """The function, computed once for each run and further arguments."""
    return _once(function)


def once_per_timeline(
    function: Callable[Concatenate[Timeline, _Arguments], _Result],
) -> Callable[Concatenate[Timeline, _Arguments], _Result]:
    """The function, computed once for each timeline and further arguments."""
    return _once(function)


def _once(
    function: Callable[Concatenate[_Subject, _Arguments], _Result],
) -> Callable[Concatenate[_Subject, _Arguments], _Result]:
    def remembered(subject: _Subject, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        key = function, (arguments, tuple(sorted(named.items())))
        if key not in subject.kept:
            subject.kept[key] = function(subject, *arguments, **named)
        result: _Result = subject.kept[key]
        return result

    update_wrapper(remembered, function)
    return remembered
