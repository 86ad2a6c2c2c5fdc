"""What is printed where a file, a folder or an argument is named like a command for the terminal, or for a CI system?"""

from __future__ import annotations

import ast
import io
import re
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from folders import FIXTURES

from perfdoctor.cli.main import COMMANDS, program
from perfdoctor.report.words.foreign_text import clean_block

CLI = Path(sys.modules["perfdoctor.cli.main"].__file__).parent
#: Sets the title of a terminal, begins a line with a command of GitHub's, and turns the writing round.
EVIL = "a\x1b]0;owned\x07\n::error file=x::b\u202e##vso[task]c"
TRACE = FIXTURES / "cpu-slow-input" / "torch" / "rank0.pt.trace.json.gz"


def said(*arguments):
    """What a command prints on both streams, whatever its end."""
    streams = io.StringIO(), io.StringIO()
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]), pytest.raises(SystemExit):
        program(*(COMMANDS.keys() & arguments[:1] or COMMANDS))(list(arguments), prog_name="perfdoctor")
    return "".join(stream.getvalue() for stream in streams)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with a trace, a trace that is none, a folder of each and a link, all of that name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFDOCTOR_HISTORY", "off")
    (tmp_path / f"{EVIL}.json").write_text("{}")
    shutil.copy(TRACE, tmp_path / f"{EVIL}.json.gz")
    (tmp_path / EVIL).mkdir()
    shutil.copy(TRACE, tmp_path / EVIL / f"{EVIL}.json.gz")
    (tmp_path / f"{EVIL}.html").write_text("not ours")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", f"{EVIL}.json.gz"),
        ("analyze", EVIL, "--html", f"{EVIL}.html"),
        ("analyze", f"{EVIL}.json.gz", "--format", "markdown", "--no-html"),
        ("analyze", f"{EVIL}.json"),
        ("analyze", f"{EVIL}-not-there"),
        ("analyze", f"{EVIL}.json.gz", "--json", f"{EVIL}/no/where"),
        ("analyze", f"{EVIL}.json.gz", "--rule", EVIL),
        ("analyze", f"{EVIL}.json.gz", "--steps", EVIL),
        ("analyze", f"{EVIL}.json.gz", "--what-if", EVIL),
        ("analyze", f"{EVIL}.json.gz", f"--{EVIL}"),
        ("compare", f"{EVIL}.json.gz", f"{EVIL}.json"),
        ("compare", EVIL, EVIL, "--no-html"),
        ("check", EVIL, "--baseline", EVIL),
        ("export", EVIL, "--sqlite", f"{EVIL}.db"),
        ("export", EVIL, "--perfetto", f"{EVIL}.pftrace"),
        ("export", EVIL, "--perfetto", f"{EVIL}.json.gz"),
        ("query", EVIL, f"SELECT '{EVIL}' AS \"{EVIL}\""),
        ("query", EVIL, f"SELECT '{EVIL}' AS \"{EVIL}\"", "--csv"),
        ("query", EVIL, EVIL),
        ("summarize", EVIL, "-o", f"{EVIL}-out"),
        ("scrub", EVIL, "-o", f"{EVIL}-out"),
        ("scrub", EVIL, "-o", f"{EVIL}.json"),
        ("scrub", f"{EVIL}-not-there", "-o", "x"),
        ("view", f"{EVIL}-not-there"),
        ("history", "show", EVIL, "--db", f"{EVIL}.db"),
        ("history", "merge", EVIL),
        ("history", EVIL),
        ("mcp", "--root", f"{EVIL}-not-there"),
        ("rules", "new", EVIL),
        ("rules", "new", "acme/slow", "--into", EVIL),
        ("rules", "check", EVIL),
        ("explain", EVIL),
        ("env", "--python", EVIL),
        ("run", "--passes", EVIL, "--", "true"),
        ("run", "--", EVIL),
        ("selftest", "--output", EVIL),
        (EVIL,),
    ],
    ids=lambda arguments: " ".join(arguments).replace(EVIL, "NAME"),
)
def test_no_name_speaks_to_the_terminal_or_to_a_ci_system(place, arguments):
    text = said(*arguments)
    assert text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert not re.search(r"^\s*::error", text, re.MULTILINE)
    assert "##vso[" not in text


@pytest.mark.parametrize(
    "command", ["::error::x", " ::add-mask::x", "a ::set-output name=x::y", "##[group]x", "x##vso[task.x]"]
)
def test_text_of_a_recording_is_no_command_of_a_ci_system(command):
    assert not re.search(r"(^|\s)::[a-z]|##(\[|vso)", clean_block(command))


def test_names_of_cpp_stay_as_they_are():
    for name in ("::at::native::add", "std::error::kind", "cub::echo<int>"):
        assert clean_block(name) == name


def test_whatever_a_command_prints_goes_through_one_place():
    """By the calls in the code: `say` prints, reports are rendered by modules that make foreign text safe."""
    calls = {
        f"{file.name}: {ast.unparse(call.func)}"
        for file in sorted(CLI.glob("*.py"))
        for call in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in ("print", "typer.echo", "typer.secho", "sys.stdout.write")
    }
    assert calls == {"say.py: typer.echo"}
