"""Are kernels that were measured alone, and snapshots of memory, held against each other?"""

from __future__ import annotations

import json

import ncu_tables
import pytest
from snapshots import MIB, Recording

from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.snapshot import of_document, of_examination
from perfdoctor.diagnosis.engine import examine
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.readers.open import read
from perfdoctor.report import json_report
from perfdoctor.report.comparison import html, markdown, words
from perfdoctor.vocabulary.rulebook import load_rules

RULES = load_rules()


def examined(path):
    return examine(prepare(read([path])), list(RULES.values()))


def snapshot(path):
    return of_examination(path.name, examined(path), RULES, [path])


def measured(folder, name, ns, memory_share, launches=1):
    changed = {"gpu__time_duration.sum": ns, f"gpu__dram_throughput{ncu_tables.ELAPSED}": memory_share}
    changed[f"gpu__compute_memory_throughput{ncu_tables.ELAPSED}"] = memory_share
    changed["memory_l2_theoretical_sectors_global"] = "100"  # all that it asks for is used
    rows = [(metric, unit, changed.get(metric, value)) for metric, unit, value in ncu_tables.RAW]
    (folder / name).write_text(ncu_tables.wide(rows, launches=launches))
    return snapshot(folder / name)


def test_a_measured_kernel_is_compared_by_one_launch_and_by_what_limits_it(tmp_path):
    before = measured(tmp_path, "was.csv", "52,576", "88.39")
    after = measured(tmp_path, "now.csv", "20,000", "40", launches=3)
    found = compare([before], [after])
    assert (found.before_ns, found.after_ns) == (52_576, 20_000)
    assert [(each.label, each.delta_ns) for each in found.causes] == [
        ("kernels limited by the memory bandwidth", -52_576),
        ("kernels limited by latency", 20_000),
    ]
    assert [(each.label, each.delta_ns) for each in found.work] == [("void add<float>(int)", -32_576)]
    assert words.verdict(found).startswith("Too little to say: a mean launch of each measured kernel of 52.6 µs became")
    assert "one launch of each" in " ".join(found.notes)


def held(folder, name, **sizes):
    made = Recording()
    for line, size in sizes.items():
        made.alloc(size * MIB, f"work/{line}.py:4 forward", "work/train.py:30 main")
    return made.write(folder / name)


def test_snapshots_are_compared_by_their_peaks_and_by_the_lines_that_held_them(tmp_path):
    paths = held(tmp_path, "was.pickle", model=100, loss=20), held(tmp_path, "now.pickle", model=40, loss=20, data=5)
    found = compare(*([snapshot(path)] for path in paths))
    (device,) = found.memory
    assert (found.verdict, found.peaks) == ("less memory", (120 * MIB, 65 * MIB))
    assert {each.line: (each.before_bytes // MIB, each.after_bytes // MIB) for each in device.holders} == {
        "work/model.py:4 forward": (100, 40), "work/data.py:4 forward": (0, 5),
    }  # fmt: skip
    for text in (markdown.render(found), html.render(found, {}), markdown.brief(found)):
        assert "Less memory: a peak of 120 MiB became 65.0 MiB" in text.replace("\u00a0", " ")
    assert compare([snapshot(paths[0])], [snapshot(paths[0])]).verdict == "no change"
    document = json.loads(json_report.render(examined(paths[1]).diagnosis))
    assert compare([snapshot(paths[0])], [of_document("now", document, RULES)]).memory == found.memory


def test_of_several_runs_a_side_the_largest_peak_of_each_device_counts(tmp_path):
    small, large = (snapshot(held(tmp_path, f"{mib}.pickle", model=mib)) for mib in (40, 100))
    for before in ([small, large], [large, small]):
        found = compare(before, [small])
        (device,) = found.memory
        assert (device.before_bytes, device.after_bytes) == found.peaks == (100 * MIB, 40 * MIB)
        assert [each.before_bytes for each in device.holders] == [100 * MIB]


def test_the_rest_of_a_peak_is_no_line_that_held_nothing(tmp_path):
    many = {f"line{number:02}": 30 - number for number in range(15)}
    found = compare(*([snapshot(held(tmp_path, f"{at}.pickle", **{**many, at: 100}))] for at in ("one", "other")))
    assert {each.line: (each.before_bytes // MIB, each.after_bytes) for each in found.memory[0].holders}[
        "work/one.py:4 forward"
    ] == (100, -1)
    assert "100 MiB → not among the largest" in "\n".join(words.memory(found))


def test_what_was_measured_in_other_units_is_not_compared(tmp_path):
    kernels = measured(tmp_path, "k.csv", "52,576", "88.39")
    with pytest.raises(PerfdoctorError, match="holds no work that could be compared"):
        compare([kernels], [snapshot(held(tmp_path, "m.pickle", model=5))])
