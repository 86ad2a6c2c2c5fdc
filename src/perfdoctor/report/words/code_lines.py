"""What is said of a line of the user's own code that was sampled while the time of a finding passed?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdoctor.patterns import regex
from perfdoctor.records.findings import Rows
from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean, clean_name
from perfdoctor.vocabulary.names.python_code import is_library

if TYPE_CHECKING:
    from perfdoctor.records.findings import Advice, CodeLine

#: `src/train.py(42)` as torch writes a line of code, `src/train.py:42` as Python does.
SOURCE_LINE = regex(r"(?P<file>[\w./+-]{1,240}\.py)(?:\((?P<torch>\d{1,7})\)|:(?P<python>\d{1,7}))(?!\w)")
_LONGEST_LINE = 160
#: Of fewer samples a share would look surer than it is.
_FEW = 10


def place(line: CodeLine) -> str:
    """Place of the line as editors open it: `train.py:12`."""
    return f"{clean_name(line.file)}:{line.line}"


def function(line: CodeLine) -> str:
    """Last name of the function that the line is in; "" at the top of a file."""
    name = line.function.rpartition(".")[2]
    return "" if name == "<module>" else clean_name(name)


def weight(line: CodeLine) -> str:
    """Evidence for the line: its share of the samples of that time and their number, or the time of its function."""
    if line.is_function:
        return f"the function begins there; {wording.duration(line.time_ns)}, {wording.share(line.share)} of that time"
    whose = " of the loader's workers" if line.is_worker else ""
    known = round(line.samples / line.share) if line.share > 0 else line.samples
    if line.is_loop:
        return f"it runs a library's loop: {wording.share(line.share)} of that time pass in code that is not yours"
    if known < _FEW:
        return f"{line.samples} of {wording.counted(known, 'sample')}{whose} in that time"
    return f"{wording.counted(line.samples, 'sample')}, {wording.share(line.share)} of those{whose} in that time"


def text(line: CodeLine) -> list[str]:
    """Statement of the line, safe to print; empty where it was not kept."""
    return [each[: len(each) - len(each.lstrip())] + clean(each, _LONGEST_LINE) for each in line.text]


def of_tables(advice: Advice) -> str:
    """The first line of user code in a finding's tables, which are sorted by cost; "" where there is none."""
    tables = [table for table in advice.evidence if isinstance(table, Rows)]
    texts = (clean(value, 120) for table in tables for row in table.rows for value in row if isinstance(value, str))
    return next((text for text in texts if SOURCE_LINE.match(text) and not is_library(text)), "")
