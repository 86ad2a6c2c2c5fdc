"""What the program writes to a real terminal, and what to a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from folders import FIXTURES

import perfdoctor

SOURCE = str(Path(perfdoctor.__file__).parents[1])
RUN = FIXTURES / "cpu-slow-input"
LINK = re.compile(r"\x1b\]8;(?:id=\d+)?;([^\x1b]*)\x1b\\")
STYLES = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(*arguments, cwd, columns=80, **environment):
    """Everything that appears on a terminal with this many columns."""
    command = [sys.executable, "-m", "perfdoctor.cli.main", *arguments]
    own = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    everything = {**own, "PYTHONPATH": SOURCE, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, cwd=cwd, env=everything
    ) as child:
        os.close(theirs)
        pieces = []
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # on Linux, when the other end is closed
                break
            if not piece:
                break
            pieces.append(piece)
        os.close(ours)
        assert child.stderr.read() == b""
    assert child.returncode == 0
    return b"".join(pieces).decode("utf-8").replace("\r\n", "\n")


def test_a_diagnosis_links_to_its_page(tmp_path):
    screen = on_terminal("analyze", str(RUN), "--html", "page.html", cwd=tmp_path)
    page = (tmp_path / "page.html").as_uri()
    found = [address for address in LINK.findall(screen) if address]
    assert found[0] == f"{page}#finding-1"
    assert found[-1] == page
    assert STYLES.sub("", LINK.sub("", screen)).splitlines()[-2:] == [
        "Details, and every fix with code: perfdoctor explain input-wait",
        "Report: page.html",
    ]


@pytest.mark.parametrize("columns", [40, 200])
def test_a_diagnosis_fits_every_terminal(columns, tmp_path):
    screen = on_terminal("analyze", str(RUN), "--no-html", cwd=tmp_path, columns=columns)
    longest = max(map(len, STYLES.sub("", screen).splitlines()))
    assert min(columns, 100) - 8 <= longest <= min(columns, 100)


def test_a_rule_s_code_is_coloured_and_its_references_can_be_opened(tmp_path):
    screen = on_terminal("explain", "input-wait", cwd=tmp_path)
    assert "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html" in LINK.findall(screen)
    assert re.search(r"\x1b\[35[;\d]*mimport\x1b\[0m", screen)


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("analyze", str(RUN), "--html", "page.html"), {"NO_COLOR": "1"}),
        (("explain", "input-wait"), {"TERM": "dumb"}),
        (("rules",), {"NO_COLOR": "1"}),
    ],
)
def test_a_terminal_that_wants_no_colour_gets_none_and_no_links(arguments, environment, tmp_path):
    screen = on_terminal(*arguments, cwd=tmp_path, **environment)
    assert "\x1b]" not in screen
    assert set(re.findall(r"\x1b\[[0-9;]*[A-Za-z]", screen)) <= {"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[1;2m"}
