"""Text of strangers is harmless in each kind of output."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.report.words.foreign_text import csv_cell

ODD = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\n::error::pwned"


def test_a_files_name_in_an_error_is_text(tmp_path: Path) -> None:
    file = tmp_path / ODD.replace("/", "")
    file.write_text("no recording")
    shown = CliRunner().invoke(app, ["analyze", str(file)]).output
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert len(shown.splitlines()) == 2
    assert not any(line.startswith("::") for line in shown.splitlines())


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1", "-1+2", "@SUM(1)", " =1"])
def test_a_cell_of_csv_is_no_formula(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize(("text", "cell"), [("::error::x", ": :error::x"), ("##vso[x]", "## vso[x]")])
def test_a_cell_of_csv_is_no_command(text: str, cell: str) -> None:
    assert csv_cell(text) == cell


def test_numbers_and_plain_text_are_as_they_are_in_csv() -> None:
    assert [csv_cell(value) for value in (-1, -1.5, None, "void f(-1)", "a=b")] == [-1, -1.5, None, "void f(-1)", "a=b"]


def test_names_in_a_query_are_text(tmp_path: Path) -> None:
    args = {"stream": 7, "device": 0}
    row = {"ph": "X", "cat": "kernel", "name": ODD, "ts": 1, "dur": 2, "pid": 0, "tid": 7, "args": args}
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [row, {**row, "name": "=1+1"}]}))
    asked = ["query", str(tmp_path / "t.json"), "SELECT name FROM kernels ORDER BY name", "--csv"]
    shown = CliRunner().invoke(app, asked).stdout
    assert "\x1b" not in shown
    assert ["'=1+1"] in list(csv.reader(io.StringIO(shown)))
