"""How the passes of a run become one Timeline: drawn recordings, and run folders made of fixtures."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from builders import timeline
from folders import FIXTURES
from ncu_files import block, launch, report
from ncu_tables import wide

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers import recorded_run
from perfdoctor.readers.open import read
from perfdoctor.report.words import wording
from perfdoctor.system.run_folder import Manifest, PassRecord, ReportedLoader, RunFolder

EPOCH_NS = 1_790_000_000_000_000_000


def rows(*items: tuple[str, int, int], rank: int = 0) -> list[dict[str, object]]:
    return [
        {"rank": rank, "process": 7, "thread": 7, "name": name, "start_ns": start, "end_ns": end}
        for name, start, end in items
    ]


def system(*ranges: tuple[str, int, int]) -> Timeline:
    return timeline(recorded=["ranges", "os_calls"], ranges=rows(*ranges), os_calls=rows(("read", 5, 9)))


def profiled(*ranges: tuple[str, int, int], ops: tuple[tuple[str, int, int], ...] = ()) -> Timeline:
    return timeline(recorded=["ranges", "ops"], ranges=rows(*ranges), ops=rows(*ops))


def test_ops_are_put_on_the_clock_of_nsys_by_the_median_of_the_steps() -> None:
    late = 170_000  # the first marker of a process costs that much
    starts = [1_000_000, 2_000_000, 3_000_000]
    here = [(f"ProfilerStep#{n}", at, at + 9) for n, at in enumerate(starts)]
    there = [
        (f"ProfilerStep#{n}", EPOCH_NS + at - (late if n == 0 else 0), EPOCH_NS + at + 9) for n, at in enumerate(starts)
    ]
    found = recorded_run.joined(
        system(*here), profiled(*there, ops=(("aten::mm", EPOCH_NS + 2_000_005, EPOCH_NS + 2_000_008),)), None
    )
    assert found.ops.start_ns.tolist() == [2_000_005]
    assert found.ops.end_ns.tolist() == [2_000_008]


def test_a_range_that_both_recorded_counts_once_and_one_that_only_torch_has_is_kept() -> None:
    here = [("ProfilerStep#1", 100, 200), ("backward", 120, 150)]
    there = [("ProfilerStep#1", 1_100, 1_200), ("backward", 1_121, 1_149), ("mine", 1_160, 1_170)]
    found = recorded_run.joined(system(*here), profiled(*there), None)
    assert sorted(zip(found.ranges.name, found.ranges.start_ns.tolist(), strict=True)) == [
        ("ProfilerStep#1", 100), ("backward", 120), ("mine", 160),
    ]  # fmt: skip
    assert found.recorded == {"ranges", "os_calls", "ops"}
    assert found["os_calls"].start_ns.tolist() == [5]


def test_without_a_common_step_the_wall_clocks_are_used_with_a_note() -> None:
    there = profiled(("mine", EPOCH_NS + 160, EPOCH_NS + 170))
    found = recorded_run.joined(system(("user", 1, 2)), there, EPOCH_NS)
    assert found.ranges.start_ns.tolist() == [1, 160]
    assert any("machine's clock" in note for note in found.notes)


def test_without_any_clock_the_ops_are_left_out_with_a_note() -> None:
    there = profiled(("mine", EPOCH_NS, EPOCH_NS + 1), ops=(("aten::mm", EPOCH_NS, EPOCH_NS + 1),))
    found = recorded_run.joined(system(("user", 1, 2)), there, None)
    assert len(found.ops) == 0
    assert any("left out" in note for note in found.notes)


# --- folders ---


def run_folder(path: Path, **files: Path) -> RunFolder:
    folder = RunFolder.create(path, Manifest(perfdoctor="0"))
    for name, source in files.items():
        target = folder.make(name.split("_")[0]) / source.name
        shutil.copy(source, target)
    return folder


TORCH = FIXTURES / "cpu-slow-input" / "torch" / "rank0.pt.trace.json.gz"
NSYS = FIXTURES / "cpu-slow-input-nsys" / "nsys" / "profile.sqlite"


def test_a_run_of_two_passes_shows_nsys_and_compares_torch_with_it(tmp_path: Path) -> None:
    run_folder(tmp_path / "run", nsys=NSYS, torch=TORCH)
    found = read([tmp_path / "run"])
    assert [source.kind for source in found.sources] == ["nsys"]
    (compared,) = [note for note in found.notes if "apart" in note]
    assert "which is shown" in compared


def test_a_trace_that_lies_there_packed_and_unpacked_is_read_once(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", torch=TORCH)
    alone = read([run.path])
    (run.path / "torch" / TORCH.stem).write_bytes(gzip.decompress(TORCH.read_bytes()))
    found = read([run.path])
    assert (len(found.ops), found.sources) == (len(alone.ops), alone.sources)


def test_where_nsys_left_nothing_readable_the_torch_pass_is_shown(tmp_path: Path) -> None:
    run_folder(tmp_path / "run", nsys=NSYS, torch=TORCH)
    (tmp_path / "run" / "nsys" / "profile.sqlite").write_bytes(b"SQLite format 3\0 and no more")
    found = read([tmp_path / "run"])
    assert [source.kind for source in found.sources] == ["kineto"]
    assert any("nsys pass cannot be read" in note for note in found.notes)


def test_the_rank_is_the_one_the_process_reported_not_the_traces(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", torch=TORCH)
    report = {"pass": "torch", "pid": 5, "rank": 3, "world_size": 4, "steps_seen": 9, "trace": "rank0.pt.trace.json"}
    (folder.path / "agents" / "torch-5.json").write_text(json.dumps(report))
    assert read([folder.path]).ranks == (3,)


@pytest.mark.parametrize(
    ("found_by", "said"),
    [("optimizer", "perfdoctor run: optimizer updates"), ("backward", "perfdoctor run: backward passes")],
)
def test_steps_that_the_recorder_marked_are_not_called_the_programs(tmp_path: Path, found_by: str, said: str) -> None:
    folder = run_folder(tmp_path / "run", torch=TORCH)
    report = {"pass": "torch", "pid": 5, "rank": 0, "steps_seen": 9, "step_found_by": found_by}
    (folder.path / "agents" / "torch-5.json").write_text(json.dumps(report))
    diagnosis = diagnose(read([folder.path]), [])
    assert wording.found_by(diagnosis.steps) == said
    assert wording.found_by(diagnose(read([TORCH]), []).steps) == "profiler steps"


def test_the_loaders_that_fed_the_steps_are_read(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", torch=TORCH)
    loader = {"batches": 10, "workers": 2, "tensors": 3, "bytes": 4_000, "epoch": 50}
    report = {"pass": "torch", "pid": 5, "rank": 0, "steps_seen": 9, "loaders": [{"batches": 1}, {**loader, "more": 1}]}
    (folder.path / "agents" / "torch-5.json").write_text(json.dumps(report))
    assert read([folder.path]).loaders == (ReportedLoader(**loader),)


def test_the_batches_of_a_step_come_from_all_iterators_over_one_loader(tmp_path: Path) -> None:
    """Four a step; an epoch ends in between. Validation has a loader of its own."""
    folder = run_folder(tmp_path / "run", torch=TORCH)
    loader = {"workers": 2, "tensors": 3, "bytes": 4_000, "epoch": 50}
    loaders = [{"batches": 25, **loader}, {"batches": 15, **loader}, {"batches": 6, **loader, "epoch": 6}]
    report = {"pass": "torch", "pid": 5, "rank": 0, "steps_seen": 19, "steps_recorded": 10, "loaders": loaders}
    (folder.path / "agents" / "torch-5.json").write_text(json.dumps(report))
    assert [each.batches_per_step for each in read([folder.path]).loaders] == [4, 4, 0.6]


def test_run_folders_of_several_machines_are_one_job_with_the_ranks_they_reported(tmp_path: Path) -> None:
    folders = []
    for rank in (0, 8):
        folder = run_folder(tmp_path / f"machine{rank}", torch=TORCH)
        report = {
            "pass": "torch",
            "pid": 5,
            "rank": rank,
            "world_size": 16,
            "steps_seen": 9,
            "trace": "rank0.pt.trace.json",
        }
        (folder.path / "agents" / "torch-5.json").write_text(json.dumps(report))
        folders.append(folder.path)
    one, both = read([folders[0]]), read(folders)
    assert both.ranks == (0, 8)
    assert len(both.ops) == 2 * len(one.ops)
    assert both.world_size == 16


def test_the_rank_of_a_process_in_nsys_is_the_one_it_reported(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", nsys=NSYS)
    ((pid,),) = sqlite3.connect(NSYS).execute("SELECT DISTINCT (globalTid >> 24) & 0xFFFFFF FROM NVTX_EVENTS")
    report = {"pass": "nsys", "pid": pid, "rank": 1, "world_size": 2, "steps_seen": 9, "nvtx_ranges": 10_000}
    (folder.path / "agents" / f"nsys-{pid}.json").write_text(json.dumps(report))
    found = read([folder.path])
    assert found.ranks == (1,)
    assert any("of 10,000 ranges arrived" in note for note in found.notes)


def test_the_step_in_which_the_program_ended_is_left_out(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", torch=TORCH)
    report = {"pass": "torch", "pid": 5, "rank": 0, "steps_seen": 9, "steps_recorded": 4, "state": "written"}
    (folder.path / "agents" / "torch-5.json").write_text(json.dumps(report))
    names = [name for name in read([folder.path]).ranges.name if name.startswith("ProfilerStep")]
    whole = [name for name in read([TORCH]).ranges.name if name.startswith("ProfilerStep")]
    assert names == whole[:4]
    assert len(whole) > 4


def two_trainings(path: Path, name: str, source: Path, pids: tuple[int, int] = (5, 6)) -> RunFolder:
    """A folder in which two processes, both of rank 0, recorded the same trace each; the second one more steps."""
    folder = run_folder(path, **({name: source} if source.suffix == ".sqlite" else {}))
    for number, pid in enumerate(pids, 1):
        trace = f"rank0-{pid}.pt.trace.json.gz" if source.suffix != ".sqlite" else ""
        if trace:
            shutil.copy(source, folder.make(name) / trace)
        report = {
            "pass": name, "pid": pid, "rank": 0, "world_size": 1, "steps_seen": 9, "steps_recorded": number + 1,
            "trace": trace.removesuffix(".gz"), "state": "written", "command": ["train.py", f"--seed={number}"],
            "step_found_by": "optimizer",
        }  # fmt: skip
        (folder.path / "agents" / f"{name}-{pid}.json").write_text(json.dumps(report))
    return folder


def test_trainings_of_one_command_are_never_mixed(tmp_path: Path) -> None:
    folder = two_trainings(tmp_path / "run", "torch", TORCH).path
    found, first = read([folder]), read([folder], process=1)
    assert [(each.number, each.pid, each.diagnosed) for each in found.processes] == [(1, 5, False), (2, 6, True)]
    assert [each.diagnosed for each in first.processes] == [True, False]
    assert len(found.ops) == len(read([TORCH]).ops)
    steps = [sum(name.startswith("ProfilerStep") for name in each.ranges.name) for each in (first, found)]
    assert steps == [2, 3]
    diagnosis = diagnose(found, [])
    assert "process 2 of 2" in wording.recorded(diagnosis)
    assert not any("rank" in piece for piece in wording.recorded(diagnosis))
    assert any("pid 6, train.py --seed=2, 3 steps recorded" in note for note in diagnosis.notes)


def test_rows_of_another_training_are_left_out_of_an_export_of_nsys(tmp_path: Path) -> None:
    ((pid,),) = sqlite3.connect(NSYS).execute("SELECT DISTINCT (globalTid >> 24) & 0xFFFFFF FROM NVTX_EVENTS")
    folder = two_trainings(tmp_path / "run", "nsys", NSYS, (pid, pid + 1)).path
    assert len(read([folder], process=1).ranges)
    assert not len(read([folder], process=2).ranges)
    # The second one made more steps, but nsys recorded only the first.
    assert [each.diagnosed for each in read([folder]).processes] == [True, False]


@pytest.mark.parametrize(("process", "what"), [(3, "has 2 trainings"), (1, "no folder of perfdoctor run")])
def test_a_process_that_is_not_there_is_refused(tmp_path: Path, process: int, what: str) -> None:
    folder = two_trainings(tmp_path / "run", "torch", TORCH).path
    with pytest.raises(UsageError, match=what):
        read([folder if process == 3 else folder / "torch"], process=process)


def report_memory(folder: RunFolder, name: str, start_ns: int, count: int = 6, rank: int = 0, pid: int = 5) -> None:
    samples = [[start_ns + 1000 * number, 500 + number, 900] for number in range(count)]
    report = {
        "pass": name, "pid": pid, "rank": rank, "steps_seen": 9, "trace": "rank0.pt.trace.json",
        "memory": {"kind": "heap", "device": -1, "samples": samples},
    }  # fmt: skip
    (folder.path / "agents" / f"{name}-5.json").write_text(json.dumps(report))


def test_the_memory_at_the_ends_of_steps_is_on_the_clock_of_the_trace(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", torch=TORCH)
    report_memory(folder, "torch", EPOCH_NS)
    found = read([folder.path])
    memory = found["memory"]
    assert "memory" in found.recorded
    assert memory.start_ns.tolist() == memory.end_ns.tolist() == [EPOCH_NS + 1000 * number for number in range(6)]
    assert memory["allocated_bytes"].tolist() == [500, 501, 502, 503, 504, 505]
    assert set(memory.name) == {"heap"}
    assert found.ranks == (0,)


def test_on_the_clock_of_nsys_memory_counts_from_the_start_of_its_session(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", nsys=NSYS)
    with closing(sqlite3.connect(folder.path / "nsys" / NSYS.name)) as database, database:
        database.execute("DROP TABLE IF EXISTS TARGET_INFO_SESSION_START_TIME")
        database.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)")
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (EPOCH_NS,))
    report_memory(folder, "nsys", EPOCH_NS + 7, pid=int(read([NSYS]).ranges["process"][0]))
    found = read([folder.path])
    assert (found.epoch_ns, found["memory"].start_ns.tolist()[0]) == (EPOCH_NS, 7)


def test_where_nsys_has_not_said_when_its_session_began_memory_has_no_place(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", nsys=NSYS)
    report_memory(folder, "nsys", 7, pid=int(read([NSYS]).ranges["process"][0]))
    found = read([folder.path])
    assert found.epoch_ns is None
    assert "memory" not in found.recorded


def test_too_few_moments_or_those_of_another_rank_are_no_recording_of_memory(tmp_path: Path) -> None:
    for number, how in enumerate(({"count": 5}, {"count": 0})):
        folder = run_folder(tmp_path / f"run{number}", torch=TORCH)
        report_memory(folder, "torch", EPOCH_NS, **how)
        assert "memory" not in read([folder.path]).recorded
    folder = run_folder(tmp_path / "other", torch=TORCH)
    report = {
        "pass": "torch",
        "pid": 6,
        "rank": 9,
        "memory": {"kind": "heap", "device": -1, "samples": [[1, 1, 1]] * 9},
    }
    (folder.path / "agents" / "torch-6.json").write_text(json.dumps(report))
    found = read([folder.path])
    assert "memory" not in found.recorded
    assert found.ranks == (0,)


def test_notes_of_the_recording_are_kept(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", torch=TORCH)
    folder.manifest.passes = [
        PassRecord("torch", state="running"),
        PassRecord("nsys", state="done", notes=["its importer failed"]),
    ]
    folder.manifest.notes = ["python -I keeps us out."]
    folder.write()
    notes = " ".join(read([folder.path]).notes)
    assert "torch pass was interrupted" in notes
    assert "its importer failed" in notes
    assert "keeps us out" in notes


def test_a_run_without_a_recording_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    folder.manifest.passes = [PassRecord("torch", state="done", notes=["nothing imported torch"])]
    folder.write()
    with pytest.raises(PerfdoctorError, match="nothing imported torch"):
        read([folder.path])


def test_what_nsight_compute_measured_in_its_own_pass_joins_the_first(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", torch=TORCH)
    (folder.make("ncu") / "train.csv").write_text(wide(launches=2))
    found = read([folder.path])
    assert [source.kind for source in found.sources] == ["kineto", "ncu"]
    assert len(found["kernel_profiles"]) == 2
    assert found.ranks == read([TORCH]).ranks


def test_an_ncu_pass_that_cannot_be_read_costs_a_note(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", torch=TORCH)
    (folder.make("ncu") / "train.csv").write_text("==ERROR== no table\n")
    found = read([folder.path])
    assert "kernel_profiles" not in found.recorded
    assert any("The ncu pass cannot be read: train.csv holds no table" in note for note in found.notes)


def test_a_run_of_which_only_the_ncu_pass_is_left_is_read(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    (folder.make("ncu") / "train.csv").write_text(wide())
    found = read([folder.path])
    assert [source.kind for source in found.sources] == ["ncu"]
    assert any("there is no timeline beside them" in note for note in found.notes)


def test_the_table_replaces_a_report_that_cannot_be_read(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", torch=TORCH)
    (folder.make("ncu") / "train.csv").write_text(wide(launches=2))
    written = folder.path / "ncu" / "train.ncu-rep"
    written.write_bytes(report(block(["gpu__time_duration.sum"], [launch({0: 5.0})])))
    assert [source.file for source in read([folder.path]).sources][1:] == ["train.ncu-rep"]
    written.write_bytes(b"NVR\0")
    found = read([folder.path])
    assert [source.file for source in found.sources][1:] == ["train.csv"]
    assert not any("cannot be read" in note for note in found.notes)
