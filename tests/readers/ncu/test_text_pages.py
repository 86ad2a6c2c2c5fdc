"""Does what Nsight Compute prints on a terminal say the same as its table?"""

from __future__ import annotations

import re

import pytest
from folders import public
from ncu_tables import DETAILS, RULE, agrees

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.open import read

NEW = "  void add<float>(int) (63, 63, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 7.5\n"
OLD = "  void add<float>(int), 2020-Jul-01 12:00:00, Context 1, Stream 7\n"
DASHES = "    ---------------------------- --------------- --------------------\n"


def page(head: str = NEW, details=DETAILS, message: str = RULE[6]) -> str:
    """What ncu prints of one launch: a table for each section, and a rule's result in lines of few words."""
    text, sections = head, dict.fromkeys(section for section, *_ in details)
    for section in sections:
        rows = [row for row in details if row[0] == section]
        text += (
            f"    Section: {section}\n{DASHES}    {'Metric Name':28} {'Metric Unit':>15} {'Metric Value':>20}\n{DASHES}"
        )
        text += "".join(f"    {label:28} {unit:>15} {value:>20}\n" for _, label, unit, value in rows) + DASHES + "\n"
    words = message.split()
    told = "".join(f"          {' '.join(words[at : at + 6])}\n" for at in range(0, len(words), 6))
    return text + f"    OPT   Est. Speedup: {RULE[8]}%\n{told}\n"


def launches(tmp_path, text: str):
    (tmp_path / "out.txt").write_text("==PROF== Connected to process 1\nepoch 1, loss 0.3\n" + text, encoding="utf-8")
    timeline = read([tmp_path / "out.txt"])
    rows, advice = timeline["kernel_profiles"], timeline["kernel_advice"]
    return [{name: column[at] for name, column in rows.columns.items()} for at in range(len(rows))], advice


def test_labels_units_sizes_and_results_are_read(tmp_path):
    (row,), advice = launches(tmp_path, page())
    agrees(row, {
        "name": "void add<float>(int)", "blocks": 63 * 63, "threads_per_block": 256, "compute_capability": 75, "device": 0,
        "gpu_time_ns": 52_576, "sm_share": 0.278, "dram_share": 0.8839, "occupancy_share": 0.7937, "waves_per_sm": 24.81,
        "sm_count": 40, "occupancy_limiter": "warps", "excess_sector_share": 0.75, "useful_bytes": 3200,
        "dram_bytes": 262.508216676e9 * 52_576e-9,
    })  # fmt: skip
    assert list(zip(advice.name, advice.floats("speedup_share"), advice["is_global"], strict=True)) == [
        ("UncoalescedGlobalAccess", pytest.approx(0.7414), True)
    ]


def test_each_launch_has_its_own_numbers_and_an_old_version_no_sizes(tmp_path):
    faster = [
        (section, label, unit, "20.0" if label == "Duration" else value) for section, label, unit, value in DETAILS
    ]
    first, second = launches(tmp_path, page(OLD) + page(details=faster, message="Nothing."))[0]
    assert (first["gpu_time_ns"], first["blocks"]) == (52_576, -1)
    assert (second["gpu_time_ns"], second["blocks"]) == (20_000, 63 * 63)


def test_numbers_of_another_locale_are_read(tmp_path):
    comma = page(details=[(*row, value.replace(".", ",")) for *row, value in DETAILS])
    assert launches(tmp_path, comma)[0][0]["gpu_time_ns"] == 52_576


def test_a_text_without_a_launch_says_what_to_pass(tmp_path):
    (tmp_path / "out.txt").write_text("==PROF== Connected to process 1\nepoch 1\n" + NEW, encoding="utf-8")
    with pytest.raises(PerfdoctorError, match="no kernel's numbers") as caught:
        read([tmp_path / "out.txt"])
    assert "--csv" in caught.value.do


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["silu-pytorch.txt", "heat-eq.txt"])
def test_every_launch_of_a_real_text_has_the_time_that_stands_in_it(name):
    """The durations, by a search for their lines alone."""
    path = public(f"ncu/{name}")
    printed = re.findall(r"^    Duration +(\w+) +([\d.,]+)$", path.read_text("utf-8"), re.MULTILINE)
    factor = {"ns": 1, "us": 1e3, "ms": 1e6}
    found = read([path])["kernel_profiles"].floats("gpu_time_ns")
    assert found.tolist() == pytest.approx([float(value.replace(",", "")) * factor[unit] for unit, value in printed])
