"""Does every recording of our own get the diagnosis that its story tells?"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.diagnose import diagnose
from perfdoctor.findings import Diagnosis
from perfdoctor.ingest.reader import read
from perfdoctor.rulebook import load_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDINGS = sorted(
    folder
    for name in ("nsys", "torch")
    for folder in FIXTURES.glob(f"*/{name}")
    if (folder.parent / "expected.toml").exists()
)
each_recording = pytest.mark.parametrize(
    "recording", RECORDINGS, ids=[f"{path.parent.name}-{path.name}" for path in RECORDINGS]
)


def digest() -> dict[str, str]:
    files = (path for path in sorted(FIXTURES.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module", autouse=True)
def nothing_is_written_into_fixtures() -> Iterator[None]:
    before = digest()
    yield
    assert digest() == before


def expected(recording: Path) -> dict[str, Any]:
    return tomllib.loads((recording.parent / "expected.toml").read_text("utf-8"))


def diagnosis_of(recording: Path) -> Diagnosis:
    return diagnose(read([recording]), list(load_rules().values()))


def promises(diagnosis: Diagnosis) -> dict[str, float]:
    """Each finding's likely saving as a share of the step."""
    flat = [each for cause in diagnosis.findings for each in (cause, *cause.symptoms)]
    return {each.rule: each.saving_ns_per_step.likely / diagnosis.base_ns for each in flat}


def test_there_are_recordings_of_both_tools() -> None:
    assert len([path for path in RECORDINGS if path.name == "nsys"]) >= 15
    assert len([path for path in RECORDINGS if path.name == "torch"]) >= 15


@each_recording
def test_the_first_finding_is_what_the_story_tells(recording: Path) -> None:
    known, diagnosis = expected(recording), diagnosis_of(recording)
    if known["first"]:
        assert diagnosis.findings[0].rule == known["first"]
    assert set(known["found"]) <= set(promises(diagnosis))


@each_recording
def test_rules_that_have_nothing_to_say_stay_silent(recording: Path) -> None:
    known, found = expected(recording), promises(diagnosis_of(recording))
    assert {rule: found[rule] for rule in known["silent"] if found.get(rule, 0) > 0.03} == {}
    if known["healthy"]:
        assert {rule: share for rule, share in found.items() if share > 0.03} == {}


@each_recording
def test_no_rule_fails(recording: Path) -> None:
    assert [outcome.error for outcome in diagnosis_of(recording).outcomes if outcome.status == "failed"] == []


@each_recording
def test_the_parts_of_every_window_sum_to_it_exactly(recording: Path) -> None:
    diagnosis = diagnosis_of(recording)
    for row in (*diagnosis.time, *diagnosis.recording):
        assert row.compute_ns + row.exposed_communication_ns + row.exposed_copy_ns + row.idle_ns == row.window_ns
        assert sum(row.idle_causes_ns.values()) == row.idle_ns


@each_recording
def test_the_shares_are_those_that_the_generator_counted(recording: Path) -> None:
    rows = {row.rank: row for row in diagnosis_of(recording).recording}
    for known in expected(recording).get("shares", ()):
        row = rows[known["rank"]]
        parts = {part: known[part] for part in ("compute", "exposed_communication", "exposed_copy", "idle")}
        for part, percent in parts.items():
            # Old Kineto traces are rounded to whole microseconds.
            assert 100 * getattr(row, f"{part}_ns") / row.window_ns == pytest.approx(percent, abs=0.05), part


def test_the_straggler_is_named() -> None:
    for name in ("nsys", "torch"):
        skew = [f for f in diagnosis_of(FIXTURES / "straggler" / name).findings if f.rule == "rank-skew"]
        assert [finding.values["late_rank"] for finding in skew] == [3]


def test_generated_recordings_are_what_their_generator_writes() -> None:
    done = subprocess.run(
        [sys.executable, str(FIXTURES / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_no_recording_tells_of_the_machine_it_was_made_on() -> None:
    home = str(Path.home()).encode()
    for path in FIXTURES.rglob("*"):
        if path.suffix in (".sqlite", ".json", ".gz", ".toml"):
            data = path.read_bytes()
            if path.suffix == ".gz":
                import gzip  # noqa: PLC0415

                data = gzip.decompress(data)
            for secret in (b"/work/", b"/tmp/", b"/home/", home + b"/", b"HOSTNAME", b"PATH="):
                assert secret not in data, f"{path.name} holds {secret!r}"


def test_the_promise_for_the_sick_example_is_what_its_cured_twin_takes() -> None:
    """One CPU, recorded once each: within a third."""
    sick, cured = (diagnosis_of(FIXTURES / name / "torch") for name in ("cpu-slow-input", "cpu-slow-input-cured"))
    assert sick.prediction is not None
    assert sick.prediction.fixed == ("input-wait",)
    assert sick.prediction.step_ns[1] == pytest.approx(cured.steps.median_ns, rel=1 / 3)
