"""What holds for all tests: hypothesis is quick and repeatable, nothing writes into fixtures/, real tools get a second try."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from folders import FIXTURES
from hypothesis import settings

settings.register_profile("perfdoctor", max_examples=150, deadline=None, derandomize=True)
settings.load_profile("perfdoctor")


#: Tests that run somebody else's program on a machine shared with others. On a busy one nsys now and then loses its own
#: agent and a step of 50 ms takes 500: one more try, which the summary shows (`-ra`), tells that from a fault of ours.
_REAL_TOOLS = ("nsys", "torch", "chromium")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.get_closest_marker(name) for name in _REAL_TOOLS):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=5))


def _fingerprints() -> dict[str, str]:
    files = sorted(path for path in FIXTURES.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(FIXTURES)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="session", autouse=True)
def fixtures_stay_as_they_are() -> Iterator[None]:
    before = _fingerprints()
    yield
    assert _fingerprints() == before, "a test wrote into fixtures/"
