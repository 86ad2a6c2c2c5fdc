"""What is worked out once and asked for often? Results kept with the place or run that they are about.

    @once_per_place
    def launching_rows(place: Place) -> Ints: ...

The second call with the same place (and the same further arguments, which must be hashable) returns the first result.
It is kept under the function itself, so no two can take the same name, and it lives as long as its place or run:
`replace(place, …)` makes another place, which begins empty. Results are shared: nobody changes one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from perfdoctor.model.place import Place
    from perfdoctor.model.run import Run

#: Results by function and further arguments.
Kept = dict[Any, Any]

_Place = TypeVar("_Place", bound="Place")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def once_per_place(
    function: Callable[Concatenate[_Place, _Arguments], _Result],
) -> Callable[Concatenate[_Place, _Arguments], _Result]:
    """The function, computed once for each place and further arguments."""

    def remembered(place: _Place, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        return _kept(
            place.kept,
            function,
            (arguments, tuple(sorted(named.items()))),
            lambda: function(place, *arguments, **named),
        )

    update_wrapper(remembered, function)
    return remembered


def once_per_run(
    function: Callable[Concatenate[Run, _Arguments], _Result],
) -> Callable[Concatenate[Run, _Arguments], _Result]:
    """The function, computed once for each run and further arguments."""

    def remembered(run: Run, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        return _kept(
            run.kept, function, (arguments, tuple(sorted(named.items()))), lambda: function(run, *arguments, **named)
        )

    update_wrapper(remembered, function)
    return remembered


def _kept(kept: Kept, function: Callable[..., Any], arguments: Hashable, compute: Callable[[], _Result]) -> _Result:
    key = (function, arguments)
    if key not in kept:
        kept[key] = compute()
    result: _Result = kept[key]
    return result
