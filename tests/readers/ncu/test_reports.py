"""Reports of Nsight Compute are read, by NVIDIA's package or by ncu, and joined with the other recordings."""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from folders import FIXTURES, public, public_files
from ncu_tables import ABOUT, DETAILS, LONG, RAW, RULE, about, agrees, long, table, wide
from rich.console import Console

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.kernels.profiles import measured
from perfdoctor.readers.ncu import nvidia_package as ncu_package
from perfdoctor.readers.ncu import profiles as ncu
from perfdoctor.readers.ncu import tool as ncu_tool
from perfdoctor.readers.open import read
from perfdoctor.report import html, json_report, terminal
from perfdoctor.system import tool_process
from perfdoctor.vocabulary.rulebook import load_rules

TRACE = FIXTURES / "healthy" / "torch" / "rank0.pt.trace.json.gz"
ELAPSED = ".avg.pct_of_peak_sustained_elapsed"


@pytest.fixture
def report(tmp_path) -> Path:
    file = tmp_path / "kernels.ncu-rep"
    file.write_bytes(b"NVR\0 of a version to come")
    return file


@pytest.fixture
def neither(monkeypatch):
    """Neither the package nor ncu is here."""
    monkeypatch.setattr(ncu_package, "is_installed", lambda: False)
    monkeypatch.setattr(tool_process, "find", lambda _: None)


# --- by ncu ---


@pytest.fixture
def tool(tmp_path, monkeypatch, neither):
    """An ncu that prints the files beside it, and writes down its environment."""

    def install(raw: str, details: str = "", code: int = 0) -> Path:
        (tmp_path / "raw.csv").write_text(raw)
        (tmp_path / "details.csv").write_text(details)
        program = tmp_path / "ncu"
        program.write_text(
            f"#!{sys.executable}\nimport json, os, pathlib, sys\nhere = pathlib.Path({str(tmp_path)!r})\n"
            "open(here / 'calls', 'a').write(json.dumps([sys.argv[1:], sorted(os.environ)]) + chr(10))\n"
            "page = sys.argv[sys.argv.index('--page') + 1]\n"
            f"print((here / (page + '.csv')).read_text())\nsys.exit({code})\n"
        )
        program.chmod(0o755)
        monkeypatch.setattr(tool_process, "find", lambda _: str(program))
        return program

    return install


def test_ncu_prints_the_metrics_and_the_results_of_rules(tool, report, tmp_path, monkeypatch):
    monkeypatch.setenv("A_SECRET", "x")
    tool("==PROF== hello\n" + wide(), table([LONG, *long([*DETAILS[0]], RULE)]))
    timeline = ncu.read(report)
    agrees({name: column[0] for name, column in timeline["kernel_profiles"].columns.items()})
    assert list(timeline["kernel_advice"].name) == ["UncoalescedGlobalAccess"]
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert calls[0][0] == ["--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    assert all("A_SECRET" not in environment for _, environment in calls)


def test_an_ncu_that_prints_no_rules_still_gives_the_metrics(tool, report):
    tool(wide(), "no such page")
    timeline = ncu.read(report)
    assert len(timeline["kernel_profiles"]) == 1
    assert timeline.recorded == {"kernel_profiles"}


@pytest.mark.parametrize(("raw", "code"), [("==ERROR== the report is too new", 1), ("", 0), (wide(), 1)])
def test_an_ncu_that_cannot_read_the_report_is_quoted(tool, report, raw, code):
    tool(raw, "", code)
    with pytest.raises(PerfdoctorError, match="ncu could not print `kernels.ncu-rep`") as caught:
        ncu.read(report)
    assert "perfdoctor[ncu]" in caught.value.do


def test_ncu_is_found_by_the_variable_and_else_on_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFDOCTOR_NCU", "/opt/somewhere/ncu")
    assert tool_process.find("ncu") == "/opt/somewhere/ncu"
    monkeypatch.delenv("PERFDOCTOR_NCU")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tool_process.find("ncu") is None
    with pytest.raises(PerfdoctorError, match="cannot be started"):
        ncu_tool.read_launches(str(tmp_path / "none"), tmp_path / "a.ncu-rep")


def test_what_neither_can_read_is_refused_with_what_to_do(neither, report):
    with pytest.raises(PerfdoctorError, match=r"`kernels.ncu-rep` cannot be read") as caught:
        read([report])
    assert "pip install 'perfdoctor[ncu]'" in caught.value.do


# --- by NVIDIA's package: a stand-in for it, then the real one where it is installed ---


class Metric:
    def __init__(self, value, unit: str = "") -> None:
        self._value, self._unit = value, unit

    def has_value(self):
        return self._value is not None

    def value(self):
        return self._value

    def unit(self):
        return self._unit


class Action:
    WorkloadType_KERNEL, NameBase_DEMANGLED = 0, 1

    def __init__(self, metrics=None, rules=(), kind: int = 0, name="k(int)") -> None:
        self._metrics = {name: Metric(*each) for name, each in (metrics or {}).items()}
        self._rules, self._kind, self._name = rules, kind, name

    def workload_type(self):
        return self._kind

    def name(self, _base=0):
        return self._name

    def metric_names(self):
        return tuple(self._metrics)

    def metric_by_name(self, name):
        return self._metrics.get(name)

    def rule_results_as_dicts(self):
        return self._rules


def installed(monkeypatch, module):
    """Read reports with this module in place of NVIDIA's package, and in this process."""
    monkeypatch.setattr(ncu_package, "is_installed", lambda: True)
    monkeypatch.setattr(ncu_package, "read_apart", lambda report: ncu_package.read_launches(module, report))


def package(*actions, fails: Exception | None = None):
    def load(path):
        if fails:
            raise fails
        return [actions]

    return SimpleNamespace(load_report=load, IAction=Action)


BASIC = {
    "gpu__time_duration.sum": (30080.0, "ns"), f"sm__throughput{ELAPSED}": (69.97, "%"), "launch__grid_dim_x": (1056, ""),
    "launch__grid_dim_y": (1, ""), "launch__grid_dim_z": (1, ""), "launch__block_dim_x": (256, "block"),
    "launch__block_dim_y": (1, ""), "launch__block_dim_z": (2, ""), "device__attribute_display_name": ("NVIDIA GH200 480GB", ""),
    "device__attribute_compute_capability_major": (9, ""), "device__attribute_compute_capability_minor": (0, ""),
    "launch__device_id": (3, ""), "lts__throughput.avg.pct_of_peak_sustained_elapsed": (None, "%"),
}  # fmt: skip
SPEEDUP = {
    "rule_identifier": "Tail",
    "rule_message": {
        "title": "Tail", "type": 2,
        "message": "Effect: see @section:LaunchStats:Launch Statistics@ and @url:the guide:https://docs.nvidia.com/a#b@",
    },
    "speedup_estimation": {"type": 2, "speedup": 50.0},
}  # fmt: skip
FAILED = {"rule_identifier": "Tail", "rule_message": {"message": "Required metric a could not be found.", "type": 4}}


def test_the_package_gives_numbers_sizes_and_rules(report, monkeypatch):
    rules = [
        SPEEDUP,
        {"rule_identifier": "Values of others"},
        FAILED,
        {**SPEEDUP, "speedup_estimation": {"type": 1, "speedup": 500}},
    ]
    stand_in = package(Action(BASIC, rules), Action(BASIC, kind=2), Action({}, name=None))
    installed(monkeypatch, stand_in)
    timeline = ncu.read(report)
    frame = timeline["kernel_profiles"]
    assert list(frame.name) == ["k(int)", ""]  # a range is no kernel
    row = {name: column[0] for name, column in frame.columns.items()}
    truth = {"gpu_time_ns": 30080, "sm_share": 0.6997, "blocks": 1056, "threads_per_block": 512, "device": 3,
             "compute_capability": 90, "gpu": "NVIDIA GH200 480GB"}  # fmt: skip
    agrees(row, truth)
    assert math.isnan(row["l2_share"])
    advice = timeline["kernel_advice"]
    assert advice["is_global"].tolist() == [True, False]
    assert advice.floats("speedup_share").tolist() == [0.5, 1.0]
    assert advice.text("message")[0] == "Tail Effect: see Launch Statistics and the guide (https://docs.nvidia.com/a#b)"


@pytest.mark.parametrize(
    "broken",
    [package(), package(Action({})), package(fails=TypeError("'NoneType' object\nis not subscriptable")), package(fails=OSError("x"))],
)  # fmt: skip
def test_a_damaged_report_is_refused_in_one_line(report, monkeypatch, neither, broken):
    installed(monkeypatch, broken)
    with pytest.raises(PerfdoctorError, match=r"`kernels.ncu-rep` cannot be read: ") as caught:
        ncu.read(report)
    assert "\n" not in caught.value.what


def test_what_the_package_cannot_read_ncu_may(tool, report, monkeypatch):
    tool(wide(), "")
    installed(monkeypatch, package(fails=OSError("too new")))
    assert len(ncu.read(report)["kernel_profiles"]) == 1


#: Its blocks are read with lengths that lead beyond the file: NVIDIA's library aborts its process.
ABORTS = (FIXTURES.parent / "tests" / "found" / "ncu-report" / "length-beyond-the-end").read_bytes()


@pytest.mark.skipif(not ncu_package.is_installed(), reason="NVIDIA's package is not installed")
def test_a_report_at_which_nvidias_library_aborts_is_refused(report, capfd, monkeypatch):
    monkeypatch.setattr(tool_process, "find", lambda _: None)  # an installed ncu would be asked as well
    report.write_bytes(ABORTS)
    with pytest.raises(PerfdoctorError, match="the library that reads it crashed"):
        ncu_package.read_apart(report)
    with pytest.raises(PerfdoctorError, match=r"`kernels.ncu-rep` cannot be read"):
        ncu.read(report)
    assert capfd.readouterr() == ("", "")


def test_a_package_that_does_not_load_is_none(monkeypatch):
    def fails(name):
        raise OSError("libnvperf_host.so: cannot open shared object file")

    monkeypatch.setattr(importlib, "import_module", fails)
    assert ncu_package.package() is None


REPORTS = public_files("ncu/*.ncu-rep")


def theirs(report: Path):
    """The kernels of a real report, by NVIDIA's package alone."""
    module = pytest.importorskip(
        "ncu_report", reason="NVIDIA's package is not installed: pip install 'perfdoctor[ncu]'"
    )
    return module, [action for each in module.load_report(str(report)) for action in each]


@pytest.mark.recordings
@pytest.mark.parametrize("report", REPORTS, ids=[report.stem for report in REPORTS])
def test_a_real_report_is_read_as_nvidia_reads_it(report):
    module, actions = theirs(report)
    frame = ncu.read(report)["kernel_profiles"]
    assert len(frame) == len(actions) > 0
    for row, action in enumerate(actions):

        def number(name, action=action):
            metric = action.metric_by_name(name)
            return metric.value() if metric is not None and metric.has_value() else math.nan

        truth = {
            "gpu_time_ns": number("gpu__time_duration.sum"), "sm_share": number(f"sm__throughput{ELAPSED}") / 100,
            "memory_share": number(f"gpu__compute_memory_throughput{ELAPSED}") / 100,
            "dram_share": number(f"gpu__dram_throughput{ELAPSED}") / 100, "l2_share": number(f"lts__throughput{ELAPSED}") / 100,
            "occupancy_share": number("sm__warps_active.avg.pct_of_peak_sustained_active") / 100,
            "occupancy_limit_share": number("sm__maximum_warps_per_active_cycle_pct") / 100,
            "waves_per_sm": number("launch__waves_per_multiprocessor"), "blocks": number("launch__grid_size"),
            "threads_per_block": number("launch__block_size"),
            "dram_bytes": number("dram__bytes_read.sum") + number("dram__bytes_write.sum"),
        }  # fmt: skip
        for column, value in truth.items():
            assert frame.columns[column][row] == pytest.approx(value, nan_ok=True), column
        assert frame.name[row] == action.name(module.IAction.NameBase_DEMANGLED)


@pytest.mark.recordings
@pytest.mark.parametrize("report", REPORTS, ids=[report.stem for report in REPORTS])
def test_a_real_report_printed_as_a_table_gives_the_same_numbers(report, tmp_path):
    """Every metric of the real report, written as ncu writes them, is read back as the report itself."""
    module, (action, *_) = theirs(report)
    metrics = []
    for name in sorted(action.metric_names()):
        metric = action.metric_by_name(name)
        if metric.has_value() and isinstance(metric.value(), (int, float)) and not name.startswith("breakdown:"):
            metrics.append((name, metric.unit(), repr(float(metric.value()))))
    text = [about(name=action.name(module.IAction.NameBase_DEMANGLED)), [""] * len(ABOUT)]
    rows = [[*ABOUT, *(name for name, _, _ in metrics)], [*text[1], *(unit for _, unit, _ in metrics)],
            [*text[0], *(value for _, _, value in metrics)]]  # fmt: skip
    (tmp_path / "kernels.csv").write_text(table(rows))
    printed, own = (ncu.read(file)["kernel_profiles"] for file in (tmp_path / "kernels.csv", report))
    numbers = [name for name, column in own.columns.items() if getattr(column, "dtype", None) == np.float64]
    for name in (*numbers, "start_ns", "end_ns"):
        assert printed.columns[name][0] == pytest.approx(own.columns[name][0], nan_ok=True), name
    assert (printed.text("stall")[0], printed.name[0]) == (own.text("stall")[0], own.name[0])


@pytest.mark.recordings
def test_the_real_table_is_read():
    """`ncu --csv` of 2025, with rules: the values as they stand in the file."""
    timeline = ncu.read(public("ncu/copy-blocked.csv"))
    row = {name: column[0] for name, column in timeline["kernel_profiles"].columns.items()}
    truth = {"gpu_time_ns": 21_058_944, "memory_share": 0.6184, "sm_share": 0.013, "occupancy_share": 0.9626, "blocks": 1024,
             "threads_per_block": 256, "waves_per_sm": 6.4, "compute_capability": 75, "sm_count": 40, "excess_sector_share": 0.75, "useful_bytes": 32 * (33554432 - 25165824),
             "dram_bytes": 196_456_177_859.63 * 0.021058944, "occupancy_limiter": "warps"}  # fmt: skip
    agrees(row, truth)
    advice = timeline["kernel_advice"]
    advice = {
        name: (share, bool(whole))
        for name, share, whole in zip(advice.name, advice.floats("speedup_share"), advice["is_global"], strict=True)
    }
    assert advice["UncoalescedGlobalAccess"] == (pytest.approx(0.7414), True)


# --- with what else was recorded ---


def kernel_of(trace: Path):
    """The kernel of a real trace that takes most time: its name, blocks and threads, and its share of their time."""
    kernels = read([trace]).kernels
    time_ns: dict[tuple[str, int, int], int] = {}
    for name, blocks, threads, ns in zip(
        kernels.name, kernels["blocks"].tolist(), kernels["threads_per_block"].tolist(), kernels.duration_ns.tolist(), strict=True
    ):  # fmt: skip
        time_ns[name, blocks, threads] = time_ns.get((name, blocks, threads), 0) + ns
    top = max(time_ns, key=lambda key: time_ns[key])
    return top, time_ns[top] / sum(time_ns.values())


def measured_table(name: str, blocks: int, threads: int) -> str:
    row = about(name=name)
    row[7], row[8], row[10] = f"({threads}, 1, 1)", f"({blocks}, 1, 1)", ""
    metrics = {"gpu__time_duration.sum": ("ns", "5000"), f"sm__throughput{ELAPSED}": ("%", "90")}
    return table(
        [
            [*ABOUT, *metrics],
            [""] * len(ABOUT) + [u for u, _ in metrics.values()],
            [*row, *(v for _, v in metrics.values())],
        ]
    )


def test_a_trace_and_a_table_are_one_timeline(tmp_path):
    (name, blocks, threads), share = kernel_of(TRACE)
    file = tmp_path / "kernels.csv"
    file.write_text(measured_table(name, blocks, threads))
    timeline = read([TRACE, file])
    assert [source.kind for source in timeline.sources] == ["kineto", "ncu"]
    assert timeline.ranks == read([TRACE]).ranks
    assert len(timeline["kernel_profiles"]) == 1
    assert any(f"and {share:.0%} of their time" in note for note in timeline.notes)
    assert not any("fit no kernel" in note for note in timeline.notes)
    assert read([file, TRACE]).notes == timeline.notes


def test_what_matches_nothing_is_noted(tmp_path):
    file = tmp_path / "kernels.csv"
    file.write_text(measured_table("void never::ran<float>(int)", 1, 32))
    notes = read([TRACE, file]).notes
    assert any("which match 0 of" in note for note in notes)
    assert any("1 launch matches no kernel of the timeline by name and size: ran." in note for note in notes)


def test_what_was_measured_on_another_gpu_is_noted_and_not_used(tmp_path):
    (name, blocks, threads), _ = kernel_of(TRACE)
    gpu = read([TRACE]).devices[0].name
    text = measured_table(name, blocks, threads)
    for other, used in ((gpu, True), ("Tesla T4", False)):
        file = tmp_path / "kernels.csv"
        rows = list(csv.reader(io.StringIO(text)))
        named = [[*row, cell] for row, cell in zip(rows, ("device__attribute_display_name", "", other), strict=True)]
        file.write_text(table(named))
        timeline = read([TRACE, file])
        assert any("another GPU (Tesla T4)" in note for note in timeline.notes) is not used
        assert any("which match" in note for note in timeline.notes) is used
        assert all(measured(place).known.any() == used for place in prepare(timeline).places)


def test_a_named_table_joins_what_a_run_folder_holds_already(tmp_path):
    (tmp_path / "a.csv").write_text(wide(launches=2))
    both = ncu.with_profiles(
        ncu.with_profiles(read([TRACE]), [ncu.read(tmp_path / "a.csv")]), [ncu.read(tmp_path / "a.csv")]
    )
    assert both["kernel_profiles"]["launch"].tolist() == [0, 1, 2, 3]


def test_several_tables_follow_each_other(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(wide(launches=2))
    frame = read([tmp_path / "0.csv", tmp_path / "1.csv"])["kernel_profiles"]
    assert frame["launch"].tolist() == [0, 1, 2, 3]
    assert frame.start_ns.tolist() == [0, 52576, 2 * 52576, 3 * 52576]
    assert len(read([tmp_path])["kernel_profiles"]) == 4


def test_a_report_beside_its_own_table_is_read_once(tmp_path, report):
    (tmp_path / "kernels.csv").write_text(wide())
    assert len(read([tmp_path])["kernel_profiles"]) == 1


def test_an_unreadable_report_that_only_lies_in_the_folder_costs_a_note(tmp_path, report, neither):
    (tmp_path / "rank0.json.gz").write_bytes(TRACE.read_bytes())
    timeline = read([tmp_path])
    assert timeline.kernels
    assert any("cannot be read" in note for note in timeline.notes)


def test_alone_it_is_diagnosed_and_every_report_notes_that_there_is_no_step(tmp_path):
    file = tmp_path / "kernels.csv"
    rows = [row for row in RAW if "sectors" not in row[0]]
    file.write_text(wide([(name, unit, "40" if "throughput" in name else value) for name, unit, value in rows]))
    timeline = read([file])
    assert any("there is no timeline beside them" in note for note in timeline.notes)
    diagnosis = diagnose(timeline, list(load_rules().values()))
    assert [advice.rule for advice in diagnosis.findings] == ["kernels-far-from-roofline"]
    assert diagnosis.findings[0].saving_ns_per_step.high == 0
    assert not [outcome for outcome in diagnosis.outcomes if outcome.status == "failed"]
    document = json.loads(json_report.render(diagnosis))
    assert [source["kind"] for source in document["run"]["sources"]] == ["ncu"]
    assert "their share of the program's time is not known" in html.render(diagnosis)
    console = Console(width=100, file=io.StringIO())
    terminal.render(diagnosis, console)
    assert "far from the roofline: 100 % of the measured time. Single kernels" in " ".join(
        console.file.getvalue().split()
    )
