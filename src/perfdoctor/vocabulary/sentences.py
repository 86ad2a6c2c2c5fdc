"""How does a rule's sentence, or a note, become one with numbers? Parts stand only where what they name is known.

A rule's `[clauses]` has such parts, each under the name of a value. `{line_clause}` in its summary, or in another
clause, is the part named `line` where the value `line` is known (not empty, not 0), and nothing where it is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from perfdoctor.patterns import regex

CLAUSE = "_clause"
#: A thousand and more of a unit.
_MANY_US = regex(r"(?<![\d.,])(\d{4,}|\d{1,3}(?:,\d{3})+)(?:\.\d+)? µs")


def filled(template: str, values: Mapping[str, object], clauses: Mapping[str, str]) -> str:
    """Fill `values` and `clauses` into the template. Raises KeyError if one that it names is missing."""
    return _MANY_US.sub(_in_ms, template.format_map(_Words(values, clauses)))


def _in_ms(found: re.Match[str]) -> str:
    """`4.90 ms` in place of `4903 µs`: a rule's sentence does not know how long its ops will be."""
    return milliseconds(float(found[1].replace(",", "")) * 1e3)


class _Words(Mapping[str, object]):
    def __init__(self, values: Mapping[str, object], clauses: Mapping[str, str]) -> None:
        self._values, self._clauses = values, clauses

    def __getitem__(self, name: str) -> object:
        if not name.endswith(CLAUSE):
            return self._values[name]
        of = name.removesuffix(CLAUSE)
        text = self._clauses[of]
        return text.format_map(self) if self._values[of] else ""

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


#: What a note begins with where a GPU's copies alone were recorded; a report without anything else begins with it, too.
NO_KERNEL = "No kernel was recorded"
#: What a note begins with where most kernels are CUDA graphs that were recorded as a whole; so does a report without
#: a finding.
IN_GRAPHS = "What runs inside CUDA graphs was not recorded"
#: What a note begins with where launches and kernels of a trace are lost; so does a report.
LOST_LAUNCHES = "The file is cut off within its GPU activity"
#: What stands in a note on a kernel that was measured alone, in front of its limit.
OF_MEASURED = "of the measured time; "


def milliseconds(ns: float) -> str:
    """The time in ms, for a note, with three significant digits or all that stand before the point."""
    ms = ns / 1e6
    return f"{ms:.3g} ms" if ms < 999.5 else f"{ms:,.0f} ms"
