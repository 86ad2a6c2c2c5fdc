"""Is progress seen where it is wanted, and only there?"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest
from folders import FIXTURES

from perfdoctor.cli.progress import progress
from perfdoctor.system.progress import BYTES, ProgressText

STRAGGLER = FIXTURES / "straggler" / "torch"


@pytest.mark.parametrize("quiet", [True, False])
def test_it_is_silent_without_a_terminal(capsys, quiet):
    with progress(quiet=quiet, verbose=False) as update:
        update("reading")
        update(ProgressText("reading", "reading", 1, 2, BYTES))
    assert capsys.readouterr().err == ""


def test_with_verbose_each_text_is_one_line_and_bytes_are_none(capsys):
    with progress(quiet=False, verbose=True) as update:
        update("starting")
        for done in range(3):
            update(ProgressText("Reading a.json", "Reading", done, 3, BYTES))
        update("Reading \x1b[31mb.json")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["starting", "Reading a.json"]
    assert len(lines) == 3
    assert "\x1b" not in lines[2]


def test_on_a_terminal_it_shows_how_much_is_done_and_leaves_nothing_behind():
    program = (
        "import time; from perfdoctor.cli.progress import progress; from perfdoctor.system.progress import ProgressText\n"
        "with progress(quiet=False, verbose=False) as update:\n"
        "    for done in range(5):\n"
        "        update(ProgressText(f'Summarised rank{done} [bold]', 'Summarising', done, 1234, 'files')); time.sleep(0.2)\n"
        "    update('Comparing the ranks'); time.sleep(0.3)\n"
    )
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "120", "TERM": "xterm-256color"}
    with subprocess.Popen([sys.executable, "-c", program], stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b"".join(_all(ours)).decode()
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search(r"Summarised rank[34] \[bold\] .*[34]/1,234 files", text)
    assert re.search(r"Comparing the ranks *\r", text)  # nobody knows how long that takes
    assert text.rstrip().endswith("Comparing the ranks")


def _all(terminal):
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # its other end is closed
            return
        if not read:
            return
        yield read
