"""The real program in a shell: exit codes, streams, colour, speed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import perfdoctor

SOURCE = str(Path(perfdoctor.__file__).parents[1])
HEAVY = {"numpy", "pandas", "pyarrow", "jinja2", "msgspec", "nanoarrow", "adbc_driver_manager", "rich"}


def perform(*arguments, cwd=None, **environment):
    command = [sys.executable, "-m", "perfdoctor.cli.main", *arguments]
    everything = {**os.environ, "PYTHONPATH": SOURCE, **environment}
    return subprocess.run(command, capture_output=True, check=False, text=True, timeout=60, cwd=cwd, env=everything)


def test_help_has_every_command_and_an_example():
    result = perform("--help")
    assert result.returncode == 0
    for command in ("analyze", "rules", "explain"):
        assert command in result.stdout
        page = perform(command, "--help")
        assert f"  perfdoctor {command}" in page.stdout
        assert "--quiet" in page.stdout
        assert "--verbose" in page.stdout


def test_version_is_one_line():
    assert perform("--version").stdout == f"perfdoctor {perfdoctor.__version__}\n"


def test_help_loads_nothing_heavy():
    code = "import sys; from perfdoctor.cli import main; print(*{name.split('.')[0] for name in sys.modules})"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, env={**os.environ, "PYTHONPATH": SOURCE}
    )
    assert not HEAVY & set(result.stdout.decode().split())


def test_what_cannot_be_done_exits_with_1_and_two_lines(tmp_path):
    result = perform("analyze", "missing.json", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    what, do = result.stderr.splitlines()
    assert what.startswith("perfdoctor: ")
    assert do.startswith("  → ")


def test_a_usage_error_exits_with_2():
    result = perform("explain", "no-such-rule")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_piped_output_and_no_color_hold_no_escape_sequence():
    assert "\x1b" not in perform("rules").stdout
    # Bold and dim are no colours.
    assert "\x1b" not in re.sub(r"\x1b\[[012]m", "", perform("rules", NO_COLOR="1", FORCE_COLOR="1").stdout)


def test_a_reader_that_stops_reading_causes_no_error_message():
    command = f"{sys.executable} -m perfdoctor.cli.main rules --verbose | true; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, check=False, text=True, env={**os.environ, "PYTHONPATH": SOURCE}
    )
    assert result.stderr == ""
    assert result.stdout.strip() in {"0", "141"}


def test_a_terminal_without_unicode_gets_no_traceback():
    result = perform("explain", "input-wait", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert "Traceback" not in result.stderr
