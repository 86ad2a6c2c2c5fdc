"""What holds for all tests: which worker runs which, hypothesis is repeatable, and nothing writes into fixtures/."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from folders import FIXTURES, NOT_HERE, public
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# Tests hold millions of rows as plain Python, none of them in a cycle: to look for some takes a third of their time.
gc.set_threshold(100_000, 50, 100)

# `make test-all` chooses the second one, and looks in more places each night: it is not derandomized.
settings.register_profile("perfdoctor", max_examples=30, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=400, deadline=None, print_blob=True)
settings.load_profile("perfdoctor")

# Hypothesis also tries constants that it finds in those of our modules that are imported by then. Which these are depends
# on what a worker ran before, and with them all examples would change.
if hasattr(providers, "_get_local_constants"):  # not in older versions, which try none
    _no_constants, _constants_of_modules = providers._local_constants, providers._get_local_constants
    providers._get_local_constants = lambda: _no_constants if settings.default.derandomize else _constants_of_modules()


HERE = Path(__file__).parent
#: Of the files whose tests wait for nothing those that take longest: begun before the others, so that at the end no
#: worker is left with one of them.
LONGEST = [
    HERE / name
    for name in (
        "scale/test_damaged_ranks.py", "vocabulary/test_additions.py", "own_rules/test_contract.py", "cli/test_check.py",
        "system/test_remote.py", "test_contract.py", "readers/kineto/test_processes.py", "scale/test_cluster.py",
        "assistant/test_own_rules.py", "cli/test_own_rules.py", "scale/test_run_folders.py", "test_docs.py",
    )
]  # fmt: skip

# Runs of tests are no history of this project.
os.environ["PERFDOCTOR_HISTORY"] = "off"

# A shell starts what runs in the background with these ignored, and so would be all programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if hasattr(signal, "SIGHUP"):  # nohup: not on Windows
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are processors: some tests wait for other programs most of the time.

    On two processors all tests take 403 s by three workers, and 387 s by four.
    """
    return len(os.sched_getaffinity(0)) + 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file run in one worker, or those of one recording.

    What waits for other programs is begun first, and then what takes longest.
    """
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
    first: dict[str, int] = {}
    for number, item in enumerate(items):
        first.setdefault(_group(item), number)
    items.sort(key=lambda item: (not _waits(item), item.path not in LONGEST, first[_group(item)]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of public recordings are skipped where those are not on this machine."""
    if item.get_closest_marker("recordings"):
        public()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that is skipped for want of public recordings fails if it is not marked: `-m recordings` would miss it."""
    report = yield
    if report.skipped and NOT_HERE in str(report.longrepr) and not item.get_closest_marker("recordings"):
        report.outcome, report.longrepr = "failed", "it reads public recordings, and is not marked `recordings`"
    return report


def _group(item: pytest.Item) -> str:
    return str(item.get_closest_marker("xdist_group").args[0])


def _waits(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(tool) for tool in ("nsys", "torch", "chromium"))


def _fingerprints() -> dict[str, str]:
    files = sorted(path for path in FIXTURES.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(FIXTURES)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="session", autouse=True)
def fixtures_stay_as_they_are() -> Iterator[None]:
    before = _fingerprints()
    yield
    assert _fingerprints() == before, "a test wrote into fixtures/"
