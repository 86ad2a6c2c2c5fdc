"""Where did somebody draw what cannot be? Mistakes in a picture name its line, and the nearest valid name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from perfdoctor.vocabulary.nearest import near

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
#: Frames of these are ours: whoever draws is outside of them.
_OURS = Path(__file__).parent


def placed(takes: Callable[..., object] | None = None) -> Callable[
    [Callable[_Arguments, _Result]], Callable[_Arguments, _Result]
]:  # fmt: skip
    """What is drawn wrongly raises the same error with the line of the drawing in front. `takes`: the function whose
    arguments are valid, where it is another one.
    """

    def of(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        valid = tuple(inspect.signature(takes or function).parameters)

        @wraps(function)
        def drawing(*arguments: _Arguments.args, **picture: _Arguments.kwargs) -> _Result:
            __tracebackhide__ = True  # pytest shows the line that draws, and not ours
            for name in picture:
                if name not in valid:
                    raise TypeError(f"{_line()}{function.__name__} has no argument {name!r}. {near(name, valid)}")
            try:
                return function(*arguments, **picture)
            except ValueError as error:
                where, said = _line(), f"{error}"  # one of ours that calls another has it in front already
                raise ValueError(said if said.startswith(where) else where + said) from None

        return drawing

    return of


def _line() -> str:
    """`test_x.py:12: ` of whoever called a function of ours; "" where nobody outside did."""
    frame = sys._getframe(1)  # noqa: SLF001 `inspect` reads the sources of all frames
    while frame is not None and Path(frame.f_code.co_filename).parent == _OURS:
        frame = frame.f_back  # type: ignore[assignment]  # it ends with None
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}: " if frame is not None else ""
