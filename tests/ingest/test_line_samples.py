"""The lines that were sampled beside a trace: files made by hand, and run folders that hold them."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from builders import timeline

from perfdoctor.errors import PerfdoctorError
from perfdoctor.ingest import line_samples
from perfdoctor.ingest.reader import read
from perfdoctor.run_folder import Manifest, RunFolder

FIXTURES = Path(__file__).parents[2] / "fixtures"
TORCH = FIXTURES / "cpu-slow-input" / "torch" / "rank0.pt.trace.json.gz"
NSYS = FIXTURES / "cpu-slow-input-nsys" / "nsys" / "profile.sqlite"
FRAMES = [
    "/usr/lib/python3.11/random.py(8): random",
    "/home/me/run/models/net.py(7): forward",
    "/home/me/run/train.py(42): step",
    "/home/me/run/train.py(90): main",
    "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py(1518): _call_impl",
    "<frozen runpy>(88): _run_code",
]
#: Innermost first: a library called by own code through a library, own code itself, no own code at all.
STACKS = [[0, 1, 4, 2, 3, 5], [2, 3], [4, 5]]


def told(**changed: object) -> dict[str, object]:
    whole = {
        "perfdoctor_lines": 1, "pid": 5, "thread": 77, "interval_ns": 5_000_000,
        "frames": FRAMES, "stacks": STACKS, "time_ns": [300, 100, 200], "stack": [2, 0, 1],
    }  # fmt: skip
    return {**whole, **changed}


def written(folder: Path, name: str = "rank0.lines.json", **changed: object) -> Path:
    file = folder / name
    file.write_text(json.dumps(told(**changed)), "utf-8")
    return file


def test_samples_are_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    found = line_samples.read(written(tmp_path))
    assert (found.pid, found.thread, found.interval_ns) == (5, 77, 5_000_000)
    assert found.time_ns.tolist() == [100, 200, 300]
    assert found.stack.tolist() == [0, 1, 2]
    assert found.own == ((FRAMES[1], FRAMES[2], FRAMES[3]), (FRAMES[2], FRAMES[3]), ())


def test_a_file_without_samples_holds_none(tmp_path: Path) -> None:
    found = line_samples.read(written(tmp_path, frames=[], stacks=[], time_ns=[], stack=[]))
    assert len(found.time_ns) == 0
    assert found.own == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"stack": [0, 1, 3]},  # no such stack
        {"stack": [0, 1, -1]},
        {"stacks": [[9], [0], [0]]},  # no such frame
        {"stacks": [[-1], [0], [0]]},
        {"stack": [0]},  # not one a sample
        {"time_ns": [1, 2, 1 << 70]},
        {"time_ns": [-1, 2, 3]},
        {"time_ns": "soon"},
        {"interval_ns": 0},
        {"pid": -1},
        {"frames": [1, 2, 3]},
        {"frames": None},
        {"perfdoctor_lines": 2},
        {"perfdoctor_lines": {}},
    ],
)
def test_what_does_not_fit_together_is_refused_and_said(tmp_path: Path, changed: dict[str, object]) -> None:
    with pytest.raises(PerfdoctorError, match=r"rank0\.lines\.json") as error:
        line_samples.read(written(tmp_path, **changed))
    assert error.value.do


@pytest.mark.parametrize("length", [0, 1, 25, 200, -1])
def test_a_file_that_breaks_off_is_refused_and_said(tmp_path: Path, length: int) -> None:
    file = written(tmp_path)
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(PerfdoctorError, match="damaged"):
        line_samples.read(file)


@pytest.mark.parametrize("content", [b"\xff\xfe\0", b"[" * 100_000, b"[]", b"null", b'{"perfdoctor_lines": 1}'])
def test_other_content_is_refused_and_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rank0.lines.json").write_bytes(content)
    with pytest.raises(PerfdoctorError, match="damaged"):
        line_samples.read(tmp_path / "rank0.lines.json")


def test_the_folder_that_own_files_have_in_common_is_not_shown(tmp_path: Path) -> None:
    one = line_samples.read(written(tmp_path))
    assert line_samples.common_folder([one]) == "/home/me/run/"
    elsewhere = line_samples.read(written(tmp_path, frames=["/srv/other/x.py(1): f"], stacks=[[0]] * 3))
    assert line_samples.common_folder([one, elsewhere]) == ""
    nothing = line_samples.read(written(tmp_path, frames=["<string>(1): f"], stacks=[[0]] * 3))
    assert line_samples.common_folder([nothing]) == ""


def recorded() -> object:
    return timeline(ops=[{"start_ns": 50, "end_ns": 500, "name": "aten::mm"}])


def test_samples_become_rows_with_their_own_lines(tmp_path: Path) -> None:
    found = line_samples.joined(recorded(), [(0, line_samples.read(written(tmp_path)))], 0)
    rows = found["line_samples"]
    assert "line_samples" in found.recorded
    assert rows.start_ns.tolist() == rows.end_ns.tolist() == [100, 200, 300]
    assert list(rows.name) == ["models/net.py(7): forward", "train.py(42): step", ""]
    assert list(rows.text("stack")) == [
        "models/net.py(7): forward ← train.py(42): step ← train.py(90): main",
        "train.py(42): step ← train.py(90): main",
        "",
    ]
    assert set(rows["interval_ns"].tolist()) == {5_000_000}
    assert (set(rows["process"].tolist()), set(rows["thread"].tolist())) == ({5}, {77})
    found.self_check()


def test_of_a_deep_stack_four_own_lines_are_kept(tmp_path: Path) -> None:
    frames = [f"/home/me/tree.py({number}): walk" for number in range(9)]
    samples = line_samples.read(written(tmp_path, frames=frames, stacks=[list(range(9))] * 3))
    (stack,) = line_samples.joined(recorded(), [(0, samples)], 0)["line_samples"].text("stack").values
    assert stack == " ← ".join(f"tree.py({number}): walk" for number in range(4))


def test_samples_of_another_time_rank_or_clock_are_left_out_and_it_is_said(tmp_path: Path) -> None:
    samples = line_samples.read(written(tmp_path))
    for rank, epoch_ns, why in ((0, -1_000, "another time"), (3, 0, "rank 3"), (0, None, "when it began")):
        found = line_samples.joined(recorded(), [(rank, samples)], epoch_ns)
        assert "line_samples" not in found.recorded
        assert len(found["line_samples"]) == 0
        assert why in found.notes[-1]
        assert found.ranks == (0,)


def test_hostile_texts_are_kept_as_text(tmp_path: Path) -> None:
    hostile = "/home/me/</script>\x1b[31m\ud800.py(1): <img src=x>"
    samples = line_samples.read(written(tmp_path, frames=[hostile], stacks=[[0]] * 3))
    rows = line_samples.joined(recorded(), [(0, samples)], 0)["line_samples"]
    assert rows.name[0].endswith("(1): <img src=x>")


# --- run folders ---


def run_folder(path: Path, pass_name: str, recording: Path) -> RunFolder:
    folder = RunFolder.create(path, Manifest(perfdoctor="0"))
    shutil.copy(recording, folder.make(pass_name) / recording.name)
    return folder


def first_op_ns() -> int:
    return int(read([TORCH]).ops.start_ns[0])


def test_in_a_torch_pass_they_are_on_the_clock_of_the_trace(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "torch", TORCH)
    at = [first_op_ns() + ns for ns in (1_000, 2_000, 3_000)]
    written(folder.path / "torch", time_ns=at, stack=[0, 1, 2])
    found = read([folder.path])
    assert found["line_samples"].start_ns.tolist() == at
    assert found["line_samples"]["rank"].tolist() == [0, 0, 0]


def test_the_rank_is_what_the_process_told(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "torch", TORCH)
    report = {"pass": "torch", "pid": 5, "rank": 3, "world_size": 4, "steps_seen": 9, "trace": "rank0.pt.trace.json"}
    (folder.path / "agents" / "torch-5.json").write_text(json.dumps(report))
    written(folder.path / "torch", "rank0.lines.json", time_ns=[first_op_ns()] * 3)
    assert set(read([folder.path])["line_samples"]["rank"].tolist()) == {3}


def test_on_the_clock_of_nsys_they_count_from_the_start_of_its_session(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "nsys", NSYS)
    alone, epoch_ns = read([NSYS]), 1_790_000_000_000_000_000
    at = [int(alone.ranges.start_ns[0]) + ns for ns in (5, 6, 7)]
    file = written(
        folder.path / "nsys", f"rank{alone.ranks[0]}.lines.json", time_ns=[epoch_ns + ns for ns in at], stack=[0, 1, 2]
    )
    found = read([folder.path])  # of an export that does not tell when it began
    assert "line_samples" not in found.recorded
    assert any(file.name in note and "when it began" in note for note in found.notes)
    with contextlib.closing(sqlite3.connect(folder.path / "nsys" / NSYS.name)) as export:
        export.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)")
        export.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (epoch_ns,))
        export.commit()
    assert read([folder.path])["line_samples"].start_ns.tolist() == at


def test_a_damaged_file_costs_a_note_and_nothing_else(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "torch", TORCH)
    (folder.path / "torch" / "rank0.lines.json").write_text('{"perfdoctor_lines": 1, "pid"')
    found = read([folder.path])
    assert "line_samples" not in found.recorded
    assert any("rank0.lines.json is damaged" in note for note in found.notes)
    assert len(found.ops) == len(read([TORCH]).ops)


def test_a_folder_that_is_no_run_is_read_without_them_and_alone_they_are_refused(tmp_path: Path) -> None:
    shutil.copy(TORCH, tmp_path / TORCH.name)
    file = written(tmp_path, frames=['"traceEvents": [{"'] * len(FRAMES))
    found = read([tmp_path])
    assert [source.kind for source in found.sources] == ["kineto"]
    with pytest.raises(PerfdoctorError, match="sampled beside a trace") as error:
        read([file])
    assert "folder of the whole run" in error.value.do
