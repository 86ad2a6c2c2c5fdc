"""The report stays readable where the terminal's encoding lacks its characters."""

from __future__ import annotations

import errno
import io

import pytest
from report.samples import COMMUNICATION, INPUT_BOUND, POISONED
from rich.console import Console
from typer.testing import CliRunner

from perfdoctor.cli import main
from perfdoctor.errors import is_a_bug
from perfdoctor.report import terminal


def printed(diagnosis, encoding):
    main.show_any_text()
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors=main.PLAIN, newline="\n")
    terminal.render(diagnosis, Console(file=stream, width=80))
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("diagnosis", [INPUT_BOUND, COMMUNICATION])
def test_ascii_has_no_question_marks(diagnosis):
    text = printed(diagnosis, "ascii")
    assert "?" not in text
    assert "\n#####" in text


def test_ascii_has_the_same_text():
    text = printed(INPUT_BOUND, "ascii")
    assert "saves 431 ms of 701 ms a step, 2.6x (1.9-2.7) | high confidence" in text
    assert "input-wait   270 ms   -431 ms  #########---------------" in text


def test_characters_of_latin_1_are_kept():
    assert "2.6× (1.9-2.7) · high" in printed(INPUT_BOUND, "latin-1")


def test_unknown_characters_are_question_marks():
    assert "文 µ →".encode("ascii", main.PLAIN) == b"? u ->"
    assert printed(POISONED, "ascii").isascii()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EBADF, "Bad file descriptor"), OSError(errno.EINVAL, "Invalid argument"), OSError("something of ours"),
        ChildProcessError(errno.ECHILD, "No child processes"),
    ],
)  # fmt: skip
def test_an_error_of_the_system_that_no_user_can_act_on_keeps_its_traceback(monkeypatch, error):
    with pytest.raises(type(error)) as caught:
        fail_with(monkeypatch, error)
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EINVAL, "Invalid argument", "strange:name"),
        PermissionError(errno.EACCES, "Permission denied", "file"), TimeoutError("timed out"),
    ],
)  # fmt: skip
def test_what_the_system_refuses_is_said_in_two_lines(monkeypatch, capsys, error):
    assert not is_a_bug(error)
    with pytest.raises(SystemExit) as caught:
        fail_with(monkeypatch, error)
    assert caught.value.code == main.FAILED
    assert len(capsys.readouterr().err.splitlines()) == 2


def fail_with(monkeypatch, error):
    """Run a command, the first thing of which raises the error."""

    def raises(*_, **__):
        raise error

    monkeypatch.setattr("perfdoctor.cli.rules.list_rules", raises)
    monkeypatch.setattr("sys.argv", ["perfdoctor", "rules"])
    main.program("rules")(prog_name="perfdoctor")


@pytest.mark.parametrize("words", [("analyze", ""), ("analyze", "a.json", ""), ("compare", "a.json", "")])
def test_an_empty_path_is_not_the_current_folder(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text("{}")
    result = CliRunner().invoke(main.app, list(words))
    assert result.exit_code == 2
    assert result.stderr.startswith("perfdoctor: A path is empty")
