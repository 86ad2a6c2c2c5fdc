"""Are values of the command line what typer makes of them, errors included, but for empty paths?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: A command with values of each kind, on its arguments; with "plain" before them, as `perfdoctor` sets typer up.
PROGRAM = """
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional
import typer

if sys.argv[1] == "plain":
    from perfdoctor.cli import plain_values
    plain_values.set_up()
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

class Color(str, Enum):
    RED = "red"

@app.command()
def main(
    paths: Annotated[list[Path], typer.Argument()],
    text: Annotated[Optional[str], typer.Option()] = None,
    texts: Annotated[Optional[list[str]], typer.Option()] = None,
    file: Annotated[Optional[Path], typer.Option()] = None,
    there: Annotated[Optional[Path], typer.Option(exists=True, dir_okay=False)] = None,
    pair: Annotated[tuple[str, int], typer.Option()] = ("a", 1),
    number: Annotated[int, typer.Option(min=1)] = 3,
    named: Annotated[str, typer.Option()] = "default",
    color: Annotated[Color, typer.Option()] = Color.RED,
    parsed: Annotated[Optional[str], typer.Option(parser=str.upper)] = None,
    flag: bool = False,
):
    print([paths, text, texts, file, there, pair, number, named, color, parsed, flag])

app(sys.argv[2:], prog_name="it")
"""
LINES = [
    [],
    ["one"],
    ["one", "two words", "--text", "", "--texts", "a", "--texts", "b", "--flag"],
    ["one", "--file", "here", "--named", "other", "--color", "red", "--number", "5", "--pair", "b", "2"],
    ["one", "--parsed", "low"],
    ["one", "--number", "0"],
    ["one", "--number", "x"],
    ["one", "--color", "blue"],
    ["one", "--there", "missing"],
    ["one", "--there", "folder"],
    ["one", "--there", "unreadable"],
    ["unreadable"],
    ["-"],
]


def printed(how: str, line: list[str], folder: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, *line], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_values_and_errors_are_those_of_typer(line: list[str], tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "unreadable").write_text("")
    (tmp_path / "unreadable").chmod(0)
    code, out, error = printed("typer", line, tmp_path)
    assert printed("plain", line, tmp_path) == (code, out, error.replace("Value error, ", ""))


@pytest.mark.parametrize("line", [["one", ""], ["one", "--file", ""]])
def test_an_empty_path_is_an_error_and_not_the_current_folder(line: list[str], tmp_path: Path):
    code, out, error = printed("plain", line, tmp_path)
    assert (code, out) == (2, "")
    assert "the path is empty; . is the current folder" in error
