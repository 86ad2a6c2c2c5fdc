"""Each command's help shows how the command is used, in 80 columns."""

from __future__ import annotations

import pytest
import typer.main
from typer.testing import CliRunner

from perfdoctor.cli.main import app

COMMANDS = sorted(typer.main.get_command(app).commands)


def help_of(*command):
    result = CliRunner().invoke(app, [*command, "--help"], prog_name="perfdoctor", env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.stdout.splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_of_itself(command):
    lines = help_of(command)
    begins = next(place for place, line in enumerate(lines) if line.strip() in ("Example:", "Examples:"))
    examples = [line.strip() for line in lines[begins + 1 :] if line.startswith("    ")]
    assert examples
    assert all(line.startswith(f"perfdoctor {command}") for line in examples)


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_no_line_of_help_is_wider_than_80_columns(command):
    assert [line for line in help_of(*command) if len(line) > 80] == []


def test_the_first_help_has_a_whole_sentence_for_each_command():
    listed = [line for line in help_of() if line.strip().split(" ")[0] in COMMANDS]
    assert len(listed) == len(COMMANDS)
    assert not [line for line in listed if line.endswith("...")]
