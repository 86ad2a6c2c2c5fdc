"""How is one property asked of many things: of all at once, or of one of each kind and of the others at night?"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import pytest

Check = Callable[..., None]


def of_each(names: str | Sequence[str], cases: Iterable[Any] | Mapping[str, Any]) -> Callable[[Check], Check]:
    """As `pytest.mark.parametrize`, but one test: it runs over all cases and lists those that fail.

    For checks that take no time: a test of its own for each case would cost more than what it checks. A mapping holds
    cases by the label under which they fail. One above the other runs over all pairs. Cases share their fixtures.
    """
    arguments = names.split(",") if isinstance(names, str) else list(names)
    labelled = list(cases.items()) if isinstance(cases, Mapping) else [(_label(case), case) for case in cases]

    def in_one_test(check: Check) -> Check:
        def test(**fixtures: Any) -> None:
            __tracebackhide__ = True
            wrong = []
            for label, case in labelled:
                values = (case,) if len(arguments) == 1 else case
                try:
                    check(**dict(zip(arguments, values, strict=True)), **fixtures)
                except Exception as error:  # noqa: BLE001 whatever is raised is listed
                    wrong.append(f"{label}: {type(error).__name__}: {error}")
            if wrong:
                pytest.fail(f"{len(wrong)} of {len(labelled)}:\n" + "\n".join(wrong), pytrace=False)

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        others = [each for each in inspect.signature(check).parameters.values() if each.name not in arguments]
        test.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        assert labelled, f"{check.__name__} checks nothing"
        return test

    return in_one_test


def one_of_each(kind: Callable[..., Hashable], cases: Iterable[Any]) -> list[Any]:
    """Cases for `pytest.mark.parametrize`: the first of each kind, and the others marked for `make test-all`."""
    seen: set[Hashable] = set()
    found = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        own = kind(*values)
        found.append(pytest.param(*values, marks=[pytest.mark.thorough] if own in seen else []))
        seen.add(own)
    return found


def _label(case: Any) -> str:
    try:
        text = repr(case)
    except UnicodeEncodeError:  # a record with a lone surrogate, as hostile files have them
        text = type(case).__name__
    return text if len(text) <= 120 else f"{text[:117]}…"
