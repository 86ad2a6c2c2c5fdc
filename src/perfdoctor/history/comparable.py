"""Are two runs of one series, so that their step times may be compared?"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from perfdoctor.errors import PerfdoctorError
from perfdoctor.history.facts import Row
from perfdoctor.patterns import regex
from perfdoctor.system.project import program_of as program_words

#: What makes a series, as `series.key_of` has it, in words; and whether None means that it is not known.
_SAME: Sequence[tuple[str, str, bool]] = (
    ("device", "ran on {}", True), ("gpus", "ran on {} GPU", True), ("world_size", "ran with {} rank", True),
    ("part", "is of {}", False),
)  # fmt: skip
_ALL = "the whole recording"
_SHOWN = 60
_DIGITS = regex(r"\d+")
_OTHER_PROGRAM = "Pin a run of this program, or name what both commands have in common: --program TEXT"


def of_document(document: Mapping[str, Any]) -> Row:
    """The facts of the run in a diagnosis.json, which does not say which part of the recording it is about."""
    run = document["run"]
    commands = (each["command"] for each in run.get("processes", ()) if each.get("diagnosed"))
    project = run.get("project") or {}
    return {
        "project": project.get("name"),
        "project_id": project.get("id"),
        "program_words": project.get("program"),
        "device": ", ".join(dict.fromkeys(gpu["name"] for gpu in run["gpus"] if gpu["name"])) or None,
        "gpus": len(run["gpus"]),
        "world_size": run["world_size"] or None,
        "command": project.get("program") or " ".join(next(commands, ())) or None,
    }


def refuse_others(
    baseline: str, before: Sequence[Row], after: Sequence[tuple[str, Row]], program: str | None = None
) -> None:
    """Raise PerfdoctorError for the first run that is not of the baseline's series. `after`: with their names.

    What one side does not know is not compared. `program`: commands that contain this text are one.
    """
    first = before[0]
    for name, row in [*((f"another run of {baseline}", row) for row in before[1:]), *after]:
        for column, words, known in _SAME:
            if column not in row or column not in first or (known and None in (row[column], first[column])):
                continue
            if row[column] != first[column]:
                was, now = (_said(words, each[column]) for each in (first, row))
                raise PerfdoctorError(
                    f"the baseline {baseline} {was}, {name} {now}",
                    do="Record it alike, or pin a run that is: perfdoctor history pin NAME",
                )
        _refuse_other_program(baseline, first, name, row, program)


def program_of(row: Mapping[str, Any]) -> str:
    """The words of the command that make it another program; of a bare recording the names of its files, whose numbers
    differ from one to the next.
    """
    command = str(row.get("command") or "")
    if not command:
        return _DIGITS.sub("#", str(row.get("files") or ""))
    return str(row.get("program_words") or program_words(_words(command)))


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # the history cuts what is very long
        return command.split()


def _refuse_other_program(baseline: str, first: Row, name: str, row: Row, program: str | None) -> None:
    was, now = first.get("command"), row.get("command")
    if program is not None and program in (was or "") and program in (now or ""):
        return
    if _of_other_projects(first, row):
        ours, theirs = (_short(each.get("project") or each["project_id"]) for each in (first, row))
        raise PerfdoctorError(
            f"the baseline {baseline} is of another project, {ours}: {_short(was or 'unknown command')}; {name} is of "
            f"{theirs}: {_short(now or 'unknown command')}",
            do=_OTHER_PROGRAM,
        )
    if was and now and program_of(first) != program_of(row):
        raise PerfdoctorError(
            f"the baseline {baseline} is of another command: {_short(was)}; {name} is of {_short(now)}",
            do=_OTHER_PROGRAM,
        )


def _of_other_projects(one: Row, other: Row) -> bool:
    """Is it known of both, and not the same? Of a run from before this was recorded only its repository is known."""
    sides = (one, other)
    if any(not each.get("project_id") for each in sides):
        return False
    if all(each.get("program_words") for each in sides):
        return bool(one["project_id"] != other["project_id"])
    return len({str(each.get("project")).partition("/")[0] for each in sides}) > 1


def _said(words: str, value: object) -> str:
    plural = "s" if isinstance(value, int) and value != 1 else ""
    return words.format(_short(_ALL if value is None else value)) + plural


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
