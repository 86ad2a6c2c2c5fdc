"""What is in a recording, and what is said of it? Each is read, diagnosed and rendered once, however many tests ask.

Tests marked by `of_recordings` run one behind the other for the same recording, in one worker: few recordings are held at once.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from decimal import Decimal
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pytest
from folders import FIXTURES, RECORDINGS

from perfdoctor.diagnosis.engine import examine
from perfdoctor.diagnosis.records import Examination
from perfdoctor.export import perfetto
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.open import read
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Views
from perfdoctor.report import html
from perfdoctor.views.build import views
from perfdoctor.vocabulary.rulebook import load_rules

RULES = load_rules()
_HELD = 4  # at once: a pair of two tools, and a neighbour of each


class Recording:
    """What is made of one file or folder. Shared: nobody changes any of it. All of it raises as `read` does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def timeline(self) -> Timeline:
        return read([self.path])

    @cached_property
    def run(self) -> Run:
        return prepare(self.timeline)

    @cached_property
    def examination(self) -> Examination:
        return examine(self.run, list(RULES.values()))

    @property
    def diagnosis(self) -> Diagnosis:
        return self.examination.diagnosis

    @cached_property
    def views(self) -> Views:
        return views(self.run, self.diagnosis)

    @cached_property
    def page(self) -> str:
        return html.render(self.diagnosis, self.views)

    @cached_property
    def perfetto(self) -> bytes:
        return b"".join(perfetto.render(self.examination))


@lru_cache(_HELD)
def recording(path: Path) -> Recording:
    return Recording(path)


def of_recordings(paths: Iterable[Path], name: str = "path") -> pytest.MarkDecorator:
    """One test a recording, with its path as argument `name`."""
    return pytest.mark.parametrize(name, [parameter(path, path) for path in paths])


def parameter(path: Path, *values: object) -> object:
    """The parameters of a test that is about this recording. Fixtures of one folder are one work, and belong together."""
    label = "/".join(path.parts[-2:])
    group = str(path.relative_to(FIXTURES)).split("/")[0] if path.is_relative_to(FIXTURES) else label
    marks = [pytest.mark.xdist_group(f"recording {group}")]
    marks += [pytest.mark.recordings] * path.is_relative_to(RECORDINGS)
    return pytest.param(*values, id=label, marks=marks)


@lru_cache(1)
def plain_json(path: Path) -> Any:
    """A Kineto trace as the standard library reads it, to hold ours against: numbers with a point are text."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, parse_float=str)


def in_ns(microseconds: str | int) -> int:
    """Exactly."""
    whole, _, part = str(microseconds).partition(".")
    plain = whole.isdigit() and part.isdigit() and len(part) <= 3
    return int(whole + part.ljust(3, "0")) if plain else int(Decimal(microseconds) * 1000)
