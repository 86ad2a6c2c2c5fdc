"""Anything in place of a number gives a PerfdoctorError or data, and no rule fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from side_texts import SIDE_TEXTS

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers import formats, side_files
from perfdoctor.system.progress import silent, unheard
from perfdoctor.vocabulary.rulebook import load_rules

ROWS = {row.kind: row for row in formats.FORMATS}
#: Rows of the program's own recorder, and JSON: their own tests damage them.
OTHERWISE = {"cpu", "flight-recorder", "machine"}
CASES = [
    pytest.param(kind, text, id=f"{kind}{n}") for kind, texts in SIDE_TEXTS.items() for n, text in enumerate(texts)
]

WORDS = ["", "9" * 18, "9" * 30, "-1", "-9e99", "1e999", "nan", "inf", "0x" + "f" * 40, "²", "٣", "N/A", "[N/A]", ",", ";", "{0}",
         "%s", "</script>", "\x00", "\x1b[4m", "=", "[", "]", "GPU 7", "#", "🔥", "1" * 300, "2024/05/01", "99:99:99"]  # fmt: skip


def _read(file: Path, row: formats.Format) -> Timeline:
    assert row.read
    found: Timeline = row.read(file, silent, unheard)
    return found


def test_every_text_that_joins_a_recording_is_damaged_here():
    joining = {row.kind for row in formats.FORMATS if row.join is side_files.joined}
    assert joining - OTHERWISE == set(SIDE_TEXTS), "write a text of each such format in benchmarks/side_texts.py"


@pytest.mark.parametrize(("kind", "text"), CASES)
@given(data=st.data())
def test_any_word_may_be_anything(tmp_path_factory, kind, text, data):
    words = re.findall(r"[\w.]+|[^\w.]", text)  # numbers by themselves, so that what surrounds them still fits
    numbers = [place for place, word in enumerate(words) if word.isdigit()]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.one_of(st.sampled_from(numbers), st.integers(0, len(words) - 1)))
        words[place] = data.draw(st.one_of(st.sampled_from(WORDS), st.sampled_from(words)))
    file = tmp_path_factory.mktemp("damaged") / "file"
    file.write_text("".join(words), encoding="utf-8")
    try:
        found = _read(file, formats.of_head(file.read_bytes()) or ROWS[kind])
    except PerfdoctorError:
        return
    diagnosis = diagnose(found, list(load_rules().values()))
    assert [outcome for outcome in diagnosis.outcomes if outcome.status == "failed"] == []


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_each_number_may_be_absurd(tmp_path, kind, text):
    words = re.findall(r"[\w.]+|[^\w.]", text)
    file = tmp_path / "file"
    for place in (place for place, word in enumerate(words) if word[0].isdigit()):
        for absurd in ("9" * 18, "9" * 19, "9" * 30, "9" * 5_000, "-1", "1e999", "²", "٣"):
            file.write_text("".join([*words[:place], absurd, *words[place + 1 :]]), encoding="utf-8")
            try:
                _read(file, ROWS[kind])
            except PerfdoctorError:
                continue


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_the_text_itself_is_of_its_kind_and_may_end_anywhere(tmp_path, kind, text):
    assert formats.of_head(text.encode()) is ROWS[kind]
    for end in range(0, len(text), 7):
        (tmp_path / "file").write_text(text[:end], encoding="utf-8")
        try:
            _read(tmp_path / "file", ROWS[kind])
        except PerfdoctorError:
            continue
