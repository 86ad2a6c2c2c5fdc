"""What our reader finds in a report is what the real Nsight Compute prints of it, without a GPU."""

from __future__ import annotations

import csv
import io
import subprocess
from pathlib import Path

import numpy as np
import pytest
from folders import public_files
from ncu_files import block, launch, report
from ncu_tables import RAW
from real_tools import installed

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import PROFILE_NUMBERS
from perfdoctor.readers.ncu import nvidia_package, report_file, tool
from perfdoctor.readers.ncu import profiles as ncu
from perfdoctor.readers.ncu.metric_names import Launch, RuleAdvice

REPORTS = public_files("ncu/*.ncu-rep") + public_files("wild/*.ncu-rep")
real = pytest.mark.parametrize("file", REPORTS, ids=[file.stem for file in REPORTS])
NAMES = [*(name for name, _, _ in RAW), "device__attribute_display_name"]
#: A chip that this ncu does not know, as any of a later generation: it prints no units.
MADE = report(
    block(
        NAMES, [launch({**{at: float(value.replace(",", "")) for at, (_, _, value) in enumerate(RAW)}, len(RAW): "A"})]
    )
)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    file = tmp_path / "made.ncu-rep"
    file.write_bytes(MADE)
    return file


def printed(file: Path, *options: str) -> str:
    command = [installed("ncu"), "--import", str(file), *options]
    # Where a chart's metric was not measured it prints all the same, and ends with 1.
    return subprocess.run(command, capture_output=True, text=True, check=False, env={}).stdout


def agree(file: Path) -> int:
    """How many values are the same to the last digit that ncu prints? Fails at the first that is not."""
    text = printed(file, "--csv", "--page", "raw", "--print-units", "base")
    _units, *rows = csv.DictReader(io.StringIO(text[text.index('"ID"') :]))
    launches, compared = report_file.read_launches(file), 0
    assert [row["Kernel Name"] for row in rows] == [launch.name for launch in launches]
    for row, ours in zip(rows, launches, strict=True):
        for name, [(value, _)] in ours.metrics.items():
            digits = len(row[name].partition(".")[2])
            assert f"{value:.{digits}f}" == row[name].replace(",", ""), name
            compared += 1
    return compared


def test_each_value_of_a_made_report_is_the_one_that_ncu_prints(made: Path) -> None:
    assert agree(made) == len(RAW)


def test_a_version_that_our_reader_does_not_know_is_read_by_an_installed_ncu(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvidia_package, "is_installed", lambda: False)
    later = tmp_path / "later.ncu-rep"
    later.write_bytes(MADE.replace(b"\x08\x07", b"\x08\x08", 1))
    with pytest.raises(PerfdoctorError, match="version 8 of the format"):
        report_file.read_launches(later)
    expected = ncu.read(made)["kernel_profiles"]
    monkeypatch.setenv("PERFDOCTOR_NCU", installed("ncu"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = ncu.read(later)["kernel_profiles"]
    for column in ("gpu_time_ns", "sm_share", "dram_bytes", "occupancy_share", "blocks"):
        assert found[column].tolist() == expected[column].tolist()
    assert not (tmp_path / "home").exists()  # ncu leaves no copy of its section files there


@pytest.mark.recordings
@real
def test_each_value_of_a_real_report_is_the_one_that_ncu_prints(file: Path) -> None:
    assert agree(file) > 0


#: The other ways to print a report, and the columns that the page lacks or has from another metric: `SM Frequency` is the
#: clock of the GPCs. Values have two digits, and the largest unit that leaves one before the point.
RAW_WAYS = [
    ("--page", "raw"),
    ("--csv", "--page", "raw", "--print-units", "auto"),
    ("--csv", "--page", "raw", "--print-fp"),
]
DETAILS = [("--page", "details"), ("--csv", "--page", "details"), ("--page", "details", "--print-details", "all")]
NAMES_WAY = ("--csv", "--page", "details", "--print-details", "all", "--print-metric-name", "name")


@pytest.mark.recordings
@real
@pytest.mark.parametrize("options", [*RAW_WAYS, *DETAILS, NAMES_WAY], ids=" ".join)
def test_any_page_that_ncu_prints_of_a_real_report_gives_its_numbers(
    file: Path, options: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "k.txt").write_text(printed(file, *options))
    expected, found = ncu.read(file)["kernel_profiles"], ncu.read(tmp_path / "k.txt")["kernel_profiles"]
    assert list(found.name) == list(expected.name)
    for column in ("blocks", "threads_per_block", "compute_capability"):
        assert found[column].tolist() == expected[column].tolist()
    for column in PROFILE_NUMBERS:
        if column == "sm_clock_hz" and options in DETAILS:
            continue
        ours, theirs = found.floats(column), expected.floats(column)
        known = ~np.isnan(ours)
        assert known.tolist() == (~np.isnan(theirs)).tolist() or options not in RAW_WAYS, column
        digits = 0.005 if column == "waves_per_sm" else 0.00005
        assert ours[known] == pytest.approx(theirs[known], rel=0.006, abs=digits), column


@pytest.mark.recordings
@real
def test_what_nvidias_rules_say_is_what_ncu_prints(file: Path) -> None:
    pairs = zip(report_file.read_launches(file), tool.read_launches(installed("ncu"), file), strict=True)
    for ours, theirs in pairs:
        assert sorted(map(_estimate, ours.advice)) == sorted(map(_estimate, theirs.advice))
        _same_words(ours, theirs)


def _estimate(advice: RuleAdvice) -> tuple[str, bool, str]:
    """The rule and its estimate, with the digits that ncu prints."""
    return advice.rule, advice.is_global, f"{100 * advice.share:.4g}"


def _same_words(ours: Launch, theirs: Launch) -> None:
    """A report has a title before what ncu prints."""
    said = [(advice.rule, advice.message) for advice in ours.advice]
    for advice in theirs.advice:
        words = " ".join(advice.message.split())
        assert any(rule == advice.rule and " ".join(message.split()).endswith(words) for rule, message in said), words
