"""How are texts and paths of the command line taken as they are, without what typer loads to check them?

Newer versions of typer check each value with pydantic, and load it for options that were not given, too. That takes as
long as reading a small trace. An empty path is refused: `Path("")` is the current folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

#: In front of what is wrong with a choice.
_OF_PYDANTIC = "Value error, "


def set_up() -> None:
    """Load pydantic for numbers and choices alone from here on. Versions of typer without it stay as they are."""
    try:
        from typer import core
        from typer._param_types import coerce_cli_path
    except ImportError:
        return
    checked = getattr(core, "build_runtime_param", None)
    if checked is not None:
        setattr(core, "build_runtime_param", lambda kind: _Value(kind, checked, coerce_cli_path))  # noqa: B010 (mypy)


class _Value:
    """What a parameter is given, with the interface of typer's `RuntimeParam`."""

    def __init__(self, kind: Any, checked: Callable[[Any], Any], path: Callable[..., Any]) -> None:
        self._kind, self._checked, self._path = kind, checked, path

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command gets it: None, or nothing of many, where none is given."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        kind = self._kind
        one = kind.annotation.__args__[0] if kind.is_list else kind.annotation
        values = value if kind.is_list and isinstance(value, (list, tuple)) else [value]
        if one not in (str, Path) or kind.parameter_info.parser or any(type(each) is not str for each in values):
            return self._checked_value(value, param, ctx)
        if one is Path:  # as typer does, with its typer.BadParameter for one that may not be read
            if not all(values):
                raise typer.BadParameter("the path is empty; . is the current folder", ctx, param)
            info = kind.parameter_info
            values = [self._path(Path(each), info, path_type=Path, param=param, ctx=ctx) for each in values]
        return list(values) if kind.is_list else values[0]

    def _checked_value(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as pydantic has it; its errors without what it calls them."""
        try:
            return self._checked(self._kind).coerce(value, param=param, ctx=ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(_OF_PYDANTIC)
            raise
