"""What holds for all tests: hypothesis is quick and repeatable, and nothing writes into fixtures/."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

FIXTURES = Path(__file__).parents[1] / "fixtures"

settings.register_profile("perfdoctor", max_examples=150, deadline=None, derandomize=True)
settings.load_profile("perfdoctor")


def _fingerprints() -> dict[str, str]:
    files = sorted(path for path in FIXTURES.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(FIXTURES)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="session", autouse=True)
def fixtures_stay_as_they_are() -> Iterator[None]:
    before = _fingerprints()
    yield
    assert _fingerprints() == before, "a test wrote into fixtures/"
