"""The report stays readable where the terminal's encoding lacks its characters."""

from __future__ import annotations

import io

import pytest
from report.samples import COMMUNICATION, INPUT_BOUND, POISONED
from rich.console import Console

from perfdoctor.cli import main
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
