"""What does a recording say to whoever runs the program? One line at a time, and never an error."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Callable
from typing import ParamSpec

from perfdoctor.errors import PerfdoctorError
from perfdoctor.system.paths import printable

P = ParamSpec("P")

_log = logging.getLogger("perfdoctor")


def harmless(consequence: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Let no error of the decorated function reach the program: it and the `consequence` are one line of warning."""

    def of(function: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                function(*args, **kwargs)
            except PerfdoctorError as error:
                warn(f"{consequence}: {error.what}. {error.do}")
            except Exception as error:  # noqa: BLE001 the training goes on
                warn(f"{consequence}: {type(error).__name__}: {error}")

        return call

    return of


def warn(text: str) -> None:
    _log.warning("perfdoctor: %s", " ".join(printable(text).split()))


def say(text: str) -> None:
    """Tell whoever waits, by the program's own logging if it has any."""
    if _log.hasHandlers():
        _log.info("perfdoctor: %s", printable(text))
    elif sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"perfdoctor: {printable(text)}\n")
