"""What is worked out once and asked for often? Results kept with the place, run or timeline that they are about.

    @once_per_place
    def launches(place: Place) -> Launches: ...

The second call with the same place (and the same further arguments, which must be hashable) returns the first result.
It is kept under the function itself, so no two can take the same name, and it lives as long as its place, run or
timeline: `replace(place, …)` makes another place, which begins empty. Results are shared: do not change them.

Of a long recording what was not asked for in a while is dropped (`Kept.next_round`), and computed again if it is asked
for after all: the same, since it follows from what does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, update_wrapper
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from msgspec import Struct

if TYPE_CHECKING:
    from perfdoctor.model.place import JobPlace, Place
    from perfdoctor.model.run import Job, Run
    from perfdoctor.model.timeline import Timeline

_Key = tuple[Callable[..., Any], Hashable]


class Kept(dict[_Key, Any]):
    """Results by function and further arguments, and in which round each that was computed here was asked for last."""

    __slots__ = ("_asked", "_round")

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[_Key, int] = {}
        self._round = 0

    def __reduce__(self) -> tuple[object, ...]:
        """What was computed here is computed again where it is needed; what was given goes along."""
        given = [
            (function.__module__, function.__qualname__, more, result)
            for (function, more), result in self.items()
            if (function, more) not in self._asked
        ]
        return _given, (given,)

    def computed(self, key: _Key, compute: Callable[[], Any]) -> Any:
        """The result under this key; what `compute` returns where there is none yet."""
        if key not in self:
            self[key] = compute()
            self._asked[key] = self._round
        elif key in self._asked:
            self._asked[key] = self._round
        return self[key]

    def next_round(self, rounds: int) -> None:
        """Begin another round, and drop what was computed here and not asked for in the last so many."""
        self._round += 1
        for key in [key for key, asked in self._asked.items() if asked <= self._round - rounds]:
            del self[key], self._asked[key]


def _given(results: Sequence[tuple[str, str, Hashable, Any]]) -> Kept:
    kept = Kept()
    for module, name, more, result in results:
        kept[getattr(import_module(module), name).__wrapped__, more] = result
    return kept


_Place = TypeVar("_Place", bound="JobPlace")
_Job = TypeVar("_Job", bound="Job[JobPlace]")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Keeps(Struct, frozen=True, dict=True):
    """What results are about: a place, a run or a timeline. `replace` makes another one, which begins empty."""

    @cached_property
    def kept(self) -> Kept:
        """What was worked out of this object once."""
        return Kept()

    def __reduce__(self) -> tuple[object, ...]:
        """The fields and `kept`: a Struct alone would leave out what is no field."""
        return _restored, (type(self), tuple(getattr(self, name) for name in self.__struct_fields__), self.kept)


_Subject = TypeVar("_Subject", bound=Keeps)


def _restored(kind: type[_Subject], fields: tuple[object, ...], kept: Kept) -> _Subject:
    subject = kind(*fields)
    vars(subject)["kept"] = kept
    return subject


def once_per_place(
    function: Callable[Concatenate[_Place, _Arguments], _Result],
) -> Callable[Concatenate[_Place, _Arguments], _Result]:
    """A decorator: the function is computed once for each place and further arguments.

    Args:
        function: A function of a place, and of further arguments that can be hashed. It lies in a module's top level.

    Returns:
        The function that remembers. Its results are shared: do not change them.
    """
    return _once(function)


def kept_in_summaries(function: Callable[[Place], _Result]) -> Callable[[JobPlace], _Result]:
    """The function, computed once for each place that was read in full; the summary of a rank brings its result."""
    return cast("Callable[[JobPlace], _Result]", _once(function))


def once_per_run(
    function: Callable[Concatenate[Run, _Arguments], _Result],
) -> Callable[Concatenate[Run, _Arguments], _Result]:
    """A decorator: the function is computed once for each run and further arguments.

    Args:
        function: A function of a run, and of further arguments that can be hashed. It lies in a module's top level.

    Returns:
        The function that remembers. Its results are shared: do not change them.
    """
    return _once(function)


def once_per_job(
    function: Callable[Concatenate[_Job, _Arguments], _Result],
) -> Callable[Concatenate[_Job, _Arguments], _Result]:
    """The function, computed once for each job or run and further arguments."""
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
        result: _Result = subject.kept.computed(key, lambda: function(subject, *arguments, **named))
        return result

    update_wrapper(remembered, function)
    return remembered
