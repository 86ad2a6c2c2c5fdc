"""Nsight Compute's CSV becomes the same launches in each of its shapes; damaged ones are counted or refused."""

from __future__ import annotations

import csv
import gzip
import math

import pytest
from ncu_tables import ABOUT, DETAILS, LONG, RAW, RULE, TRUTH, about, agrees, long, table, wide

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.readers.ncu import csv_pages
from perfdoctor.readers.ncu import profiles as ncu


def read(tmp_path, text: str | bytes):
    file = tmp_path / "kernels.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return ncu.read(file)


def first(tmp_path, text: str | bytes) -> dict[str, object]:
    """The only launch as a mapping."""
    frame = read(tmp_path, text)["kernel_profiles"]
    assert len(frame) == 1
    return {name: column[0] for name, column in frame.columns.items()}


def test_the_raw_page_in_base_units(tmp_path):
    found = first(tmp_path, wide())
    agrees(found)
    assert all(math.isnan(found[name]) for name in ("tensor_share", "sm_clock_hz", "l1_share", "sm_count"))


def test_the_raw_page_in_the_shortest_units(tmp_path):
    short = {
        "gpu__time_duration.sum": ("usecond", "52.576"), "dram__bytes_read.sum": ("Mbyte", "9.612288"),
        "dram__bytes_write.sum": ("Kbyte", "4,189.344"),
    }  # fmt: skip
    agrees(first(tmp_path, wide([(name, *short.get(name, (unit, value))) for name, unit, value in RAW])))


def test_the_raw_page_of_another_locale(tmp_path):
    swap = str.maketrans(",.", ".,")
    german = [(name, unit, value.translate(swap)) for name, unit, value in RAW]
    agrees(first(tmp_path, wide(german)))
    agrees(first(tmp_path, wide(german, delimiter=";", quoting=csv.QUOTE_MINIMAL)))


@pytest.mark.parametrize(
    "disguise",
    [
        lambda text: "==PROF== Connected to process 31440 (/usr/bin/python3)\nepoch 1, loss 0.3\n" + text,
        lambda text: text.replace("\n", "\n==PROF== Disconnected from process 31440\n"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text + text.split("\n")[0] + "\n",  # a second process that measured nothing
        lambda text: text.encode("utf-16"),
        lambda text: gzip.compress(text.encode()),
    ],
)  # fmt: skip
def test_what_stands_around_the_table_changes_nothing(tmp_path, disguise):
    agrees(first(tmp_path, disguise(wide())))


def test_rows_that_do_not_fit_are_counted(tmp_path):
    timeline = read(tmp_path, wide(launches=3) + 'epoch 2, loss 0.2\n"3","31440","pyth\n')
    assert len(timeline["kernel_profiles"]) == 3
    assert any("2 lines are no rows of the table" in note for note in timeline.notes)


def test_without_its_row_of_units_only_what_is_never_scaled_is_known(tmp_path):
    found = first(tmp_path, wide(units=False))
    known = ("sm_share", "memory_share", "occupancy_share", "waves_per_sm", "stall_share", "excess_sector_share")
    agrees(found, {column: TRUTH[column] for column in known})
    assert math.isnan(found["gpu_time_ns"])
    assert math.isnan(found["dram_bytes"])
    assert any("row of units is missing" in note for note in read(tmp_path, wide(units=False)).notes)


def test_the_details_page_gives_the_same(tmp_path):
    metrics = [[*metric] for metric in DETAILS]
    found = first(tmp_path, table([LONG, *long(*metrics, RULE)]))
    same = ("gpu_time_ns", "sm_share", "memory_share", "dram_share", "l2_share", "occupancy_share", "waves_per_sm",
            "occupancy_limiter", "excess_sector_share", "blocks", "threads_per_block", "name")  # fmt: skip
    agrees(found, {column: TRUTH[column] for column in same})
    # 262.508 GB/s for 52.576 µs: the label "Memory Throughput" is a share as well as a rate.
    assert found["dram_bytes"] == pytest.approx(262.508216676 * 52576)
    assert (found["sm_clock_hz"], found["memory_clock_hz"], found["sm_count"]) == (pytest.approx(540.54e6), 4.64e9, 40)


def test_results_of_nvidias_rules_are_read(tmp_path):
    other = [*RULE[:4], "SOLBottleneck", "OPT", "Look at the memory", "", ""]
    part = [*RULE[:4], "HighPipeUtilization", "OPT", "", "local", "98.86"]
    advice = read(tmp_path, table([LONG, *long([*DETAILS[0]], RULE, other, part)]))["kernel_advice"]
    assert list(advice.name) == ["UncoalescedGlobalAccess", "SOLBottleneck", "HighPipeUtilization"]
    shares = advice.floats("speedup_share").tolist()
    assert (shares[0], shares[2]) == (pytest.approx(0.7414), pytest.approx(0.9886))
    assert math.isnan(shares[1])
    assert advice["is_global"].tolist() == [True, False, False]


def test_launches_are_kept_apart_and_follow_each_other(tmp_path):
    text = table([LONG, *long([*DETAILS[4]], number=0), *long([*DETAILS[4]], [*DETAILS[2]], number=1)])
    frame = read(tmp_path, text)["kernel_profiles"]
    assert frame["launch"].tolist() == [0, 1]
    assert frame.start_ns.tolist() == [0, 52576]
    assert frame.end_ns.tolist() == [52576, 2 * 52576]
    assert math.isnan(frame.floats("memory_share")[0])


@pytest.mark.parametrize(
    ("old", "column"),
    [("SOL SM", "sm_share"), ("SM [%]", "sm_share"), ("SOL Memory", "memory_share"), ("Memory [%]", "memory_share"), ("SOL DRAM", "dram_share")],
)  # fmt: skip
def test_labels_of_older_versions_are_known(tmp_path, old, column):
    assert first(tmp_path, table([LONG, *long(["GPU Speed Of Light", old, "%", "50"])]))[column] == 0.5


@pytest.mark.parametrize(
    "name", ["</script>[/]", "a,b;\tc", 'k<"x">', "=cmd()", "\x1b[31mred", "x" * 5000, "", "(256, 1, 1)"]
)
def test_hostile_names_stay_names(tmp_path, name):
    rows = [[*ABOUT, RAW[0][0]], [""] * len(ABOUT) + ["ns"], [*about(name=name), "100"]]
    found = first(tmp_path, table(rows))
    assert found["name"] == name.strip()
    assert found["gpu_time_ns"] == 100


@pytest.mark.parametrize(
    ("size", "product"),
    [("(63, 63, 1)", 3969), ("63, 63, 1", UNKNOWN), ("", UNKNOWN), ("(9999999999, 9999999999, 9)", UNKNOWN), ("(-1, 1, 1)", UNKNOWN)],
)  # fmt: skip
def test_a_size_that_is_none_is_unknown(tmp_path, size, product):
    row = about()
    row[8] = size
    found = first(tmp_path, table([[*ABOUT, RAW[0][0]], [""] * len(ABOUT) + ["ns"], [*row, "100"]]))
    assert found["blocks"] == product


@pytest.mark.parametrize("value", ["n/a", "", "nan", "-5", "CachePreferNone"])
def test_what_was_not_measured_is_unknown_and_not_zero(tmp_path, value):
    metrics = [(name, unit, value if "sm__throughput" in name else given) for name, unit, given in RAW]
    assert math.isnan(first(tmp_path, wide(metrics))["sm_share"])


def test_a_metric_in_a_unit_that_cannot_be_is_unknown(tmp_path):
    metrics = [(name, "byte" if name == "gpu__time_duration.sum" else unit, value) for name, unit, value in RAW]
    assert math.isnan(first(tmp_path, wide(metrics))["gpu_time_ns"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (table([ABOUT]), "holds no measured kernel"),
        ("==PROF== Connected\nnothing\n", "no kernel's numbers stand"),
        ('"ID","Process ID","' + "x" * 200_000, "is damaged|no measured kernel"),
        (b"\x1f\x8b" + b"broken", "is damaged"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_with_what_to_do(tmp_path, text, says):
    with pytest.raises(PerfdoctorError, match=says) as caught:
        read(tmp_path, text)
    assert caught.value.do
    assert "\n" not in caught.value.what


def test_a_table_is_recognised_by_its_header():
    assert csv_pages.looks_like(wide().encode())
    assert csv_pages.looks_like(b"epoch 1\n" + wide().encode())
    assert csv_pages.looks_like(wide().encode("utf-16"))
    assert not csv_pages.looks_like(b'{"traceEvents": []}')
    assert not csv_pages.looks_like(b"")
    assert not csv_pages.looks_like(b'"ID","Name"\n1,2\n')
