"""Are two runs of one series, so that their step times may be compared?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfdoctor.errors import PerfdoctorError
from perfdoctor.history.facts import Row

#: What makes a series, as `series.key_of` has it, in words; and whether None means that it is not known.
_SAME: Sequence[tuple[str, str, bool]] = (
    ("device", "ran on {}", True), ("gpus", "ran on {} GPU", True), ("world_size", "ran with {} rank", True),
    ("part", "is of {}", False),
)  # fmt: skip
_ALL = "the whole recording"
_SHOWN = 60


def of_document(document: Mapping[str, Any]) -> Row:
    """The facts of the run in a diagnosis.json, which does not say which part of the recording it is about."""
    run = document["run"]
    commands = (each["command"] for each in run.get("processes", ()) if each.get("diagnosed"))
    return {
        "device": ", ".join(dict.fromkeys(gpu["name"] for gpu in run["gpus"] if gpu["name"])) or None,
        "gpus": max(len(run["gpus"]), sum(row["device"] is not None for row in document["time"])),
        "world_size": run["world_size"] or None,
        "command": " ".join(next(commands, ())) or None,
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
        _refuse_other_command(baseline, first, name, row, program)


def _refuse_other_command(baseline: str, first: Row, name: str, row: Row, program: str | None) -> None:
    was, now = first.get("command"), row.get("command")
    if not was or not now or was == now:
        return
    if program is not None and program in was and program in now:
        return
    raise PerfdoctorError(
        f"the baseline {baseline} is of another command: {_short(was)}; {name} is of {_short(now)}",
        do="Pin a run of this command, or name what both have in common: --program TEXT",
    )


def _said(words: str, value: object) -> str:
    plural = "s" if isinstance(value, int) and value != 1 else ""
    return words.format(_short(_ALL if value is None else value)) + plural


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
