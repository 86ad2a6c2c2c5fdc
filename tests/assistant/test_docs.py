"""Do the configurations on the page start a server, and does its program run?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from folders import FIXTURES, ROOT

from assistant.client import connected
from perfdoctor.system.toml_tables import parsed

PAGE = (ROOT / "docs" / "assistants.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def servers() -> list[list[str]]:
    """The command of each configuration, with a root that is here."""
    found = []
    for text in (*blocks("json"), *blocks("toml")):
        document = json.loads(text) if text.startswith("{") else parsed(text)
        (table,) = document.values()
        (server,) = table.values()
        found.append([server["command"], *server["args"]])
    found += [line.partition(" -- ")[2].split() for line in blocks("bash")[1].splitlines()]
    return [
        [str(FIXTURES) if word in ("/home/me/traces", "${workspaceFolder}") else word for word in each]
        for each in found
    ]


def with_program(folder: Path) -> dict[str, str]:
    """An environment in which `perfdoctor` and `python` are those of these tests."""
    for name, line in {"perfdoctor": "-m perfdoctor ", "python": ""}.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {line}"$@"\n')
        program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.skipif(os.name != "posix", reason="the program is a shell's")
def test_every_configuration_starts_a_server(tmp_path):
    commands = {tuple(each) for each in servers()}
    assert len(servers()) == 4
    for program in commands:
        with connected(program, with_program(tmp_path)) as client:
            assert {tool.name for tool in client.tools()} >= {"analyze", "findings"}


@pytest.mark.skipif(os.name != "posix", reason="the program is a shell's")
def test_the_program_of_the_page_runs(tmp_path):
    (code,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=with_program(tmp_path), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("input-wait\n", 0), done.stderr
