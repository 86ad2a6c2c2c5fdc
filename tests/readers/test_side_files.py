"""Side files join a timeline: recognised by content, on its clock where possible, and found in run folders."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from builders import draw
from folders import ROOT
from machine_builders import SECOND_NS, beside, samples
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.readers import formats, side_files
from perfdoctor.readers.open import read
from perfdoctor.recording.tools.nvml import COLUMNS
from perfdoctor.report.words import wording
from perfdoctor.system.progress import silent, unheard
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder
from perfdoctor.vocabulary.rulebook import load_rules
from perfdoctor.vocabulary.signals import MACHINE_SIGNALS

TRACE = ROOT / "fixtures" / "healthy" / "torch" / "rank0.pt.trace.json.gz"
EXPORT = ROOT / "fixtures" / "healthy" / "nsys" / "profile.sqlite"
EPOCH_NS = 1_790_000_000_000_000_000
TOPOLOGY = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-5\nGPU1\tNV4\t X \t0-5\n"
LOG = "host:1:2 [0] NCCL INFO Using network IB\n"


def trained(zero_ns: int | None = EPOCH_NS) -> Timeline:
    """A second of work that begins 10 s after the recording's time 0."""
    return replace(draw(kernels="####  ", launched_us_before=50, repeat=10, unit_us=16_000), epoch_ns=zero_ns)


def sampled(start_ns: int, *, on_clock: bool, count: int = 20) -> Timeline:
    return beside(
        device_samples=samples(count, start_ns=start_ns, every_ns=SECOND_NS // 5, on_clock=on_clock, power_w=300.0)
    )


def joined(timeline: Timeline, side: Timeline) -> tuple[Frame, list[str]]:
    found = side_files.joined(timeline, [side])
    return found["device_samples"], [note for note in found.notes if note not in timeline.notes]


# --- clocks ----------------------------------------------------------------------------------------------------------


def test_samples_with_a_known_time_come_onto_the_recordings_clock():
    frame, notes = joined(trained(), sampled(EPOCH_NS + 10 * SECOND_NS, on_clock=True))
    assert frame.start_ns[0] == 10 * SECOND_NS
    assert frame["is_on_clock"].all()
    assert notes == []


def test_a_recording_since_1970_needs_no_more():
    drawn = trained(None)
    late = {
        signal: rows.with_columns(start_ns=rows.start_ns + EPOCH_NS, end_ns=rows.end_ns + EPOCH_NS)
        for signal, rows in drawn.frames.items()
    }
    frame, _ = joined(replace(drawn, frames=late), sampled(EPOCH_NS + 10 * SECOND_NS, on_clock=True))
    assert frame["is_on_clock"].all()
    assert frame.start_ns[0] == EPOCH_NS + 10 * SECOND_NS


def test_samples_of_another_time_count_as_a_whole():
    frame, (note,) = joined(trained(), sampled(EPOCH_NS + 99 * SECOND_NS, on_clock=True))
    assert not frame["is_on_clock"].any()
    assert frame.start_ns[0] == 0
    assert "at another time than the recording" in note


@pytest.mark.parametrize("hours", [-7, -3.5, 0, 2, 5.75, 13])
def test_local_time_is_put_where_a_single_zone_makes_both_overlap(hours):
    zone_ns = int(hours * 3600) * SECOND_NS
    frame, (note,) = joined(trained(), sampled(EPOCH_NS + 10 * SECOND_NS + zone_ns, on_clock=False))
    assert frame["is_on_clock"].all()
    assert frame.start_ns[0] == 10 * SECOND_NS
    assert f"read as UTC{hours:+g} h" in note


def test_local_time_of_hours_of_samples_leaves_the_zone_open():
    long = sampled(EPOCH_NS, on_clock=False, count=5 * 3600 * 3)  # three hours: several whole hours would fit
    frame, (note,) = joined(trained(), long)
    assert not frame["is_on_clock"].any()
    assert "several time zones would fit" in note


def test_local_time_of_no_zone_at_all_counts_as_a_whole():
    frame, (note,) = joined(trained(), sampled(EPOCH_NS + 8000 * SECOND_NS, on_clock=False))
    assert not frame["is_on_clock"].any()
    assert "sampled at another time" in note


@pytest.mark.parametrize("on_clock", [True, False])
def test_samples_of_another_day_are_left_out(on_clock):
    frame, (note,) = joined(trained(), sampled(EPOCH_NS - 48 * 3600 * SECOND_NS, on_clock=on_clock))
    assert not len(frame)
    assert "48 hours from the recording" in note


@pytest.mark.parametrize("start_ns", [0, 34_000 * SECOND_NS])
def test_samples_without_a_date_count_as_a_whole(start_ns):
    frame, (note,) = joined(trained(), sampled(start_ns, on_clock=False))
    assert not frame["is_on_clock"].any()
    assert "cannot be put on the recording's clock" in note


def test_beside_a_recording_without_its_time_samples_count_as_a_whole():
    frame, (note,) = joined(trained(None), sampled(EPOCH_NS, on_clock=True))
    assert not frame["is_on_clock"].any()
    assert "cannot be put on the recording's clock" in note


def test_an_export_of_nsys_has_the_time_of_its_time_0(tmp_path):
    export = Path(shutil.copy(EXPORT, tmp_path))
    with closing(sqlite3.connect(export)) as database, database:
        database.execute("DROP TABLE IF EXISTS TARGET_INFO_SESSION_START_TIME")
        database.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)")
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (EPOCH_NS,))
    assert read([export]).epoch_ns == EPOCH_NS


# --- files -----------------------------------------------------------------------------------------------------------


def written(folder: Path, **files: str) -> list[Path]:
    paths = []
    for name, text in files.items():
        (folder / name).write_text(text)
        paths.append(folder / name)
    return paths


def test_a_trace_with_topology_and_log_is_one_timeline(tmp_path):
    beside_it = written(tmp_path, a=TOPOLOGY, b=LOG, c="index, power.draw [W]\n0, 5 W\n")
    alone, found = read([TRACE]), read([TRACE, *beside_it])
    assert [source.kind for source in found.sources] == ["kineto", "topology", "nccl", "nvml"]
    assert found.ranks == alone.ranks
    assert found.recorded == alone.recorded | {"links", "transports", "nccl_facts", "device_samples"}
    assert len(found.kernels) == len(alone.kernels)
    assert len(found["links"]) == 2


def test_side_files_do_not_move_the_times_of_the_trace(tmp_path):
    beside_it = written(tmp_path, a=TOPOLOGY, b=LOG)
    rules = list(load_rules().values())
    assert diagnose(read([TRACE, *beside_it]), rules).time == diagnose(read([TRACE]), rules).time


def test_alone_such_files_give_notes_on_what_was_read(tmp_path):
    found = read(written(tmp_path, a=TOPOLOGY, b=LOG))
    assert any("2 GPUs" in note for note in found.notes)
    diagnosis = diagnose(found, list(load_rules().values()))
    assert wording.verdict(diagnosis).startswith("2 GPUs: 1 pair over NV4 (1 more file). No problem found")
    assert not [outcome for outcome in diagnosis.outcomes if outcome.status == "failed"]


def test_a_finding_in_such_files_alone_is_the_verdict(tmp_path):
    lines = LOG + "".join(
        f"host:1:2 [0] NCCL INFO {text}\n"
        for text in ("Loading topology file /a/topo.xml", "+ NVL[20.0] - GPU/0-1", "+ NVL[240.0] - GPU/0-2")
    )
    diagnosis = diagnose(read(written(tmp_path, a=lines)), list(load_rules().values()))
    assert [advice.rule for advice in diagnosis.findings] == ["nccl-slow-path"]
    assert wording.verdict(diagnosis).startswith("NCCL uses a slower path")


def test_a_folder_finds_them_by_content(tmp_path):
    written(tmp_path, one=TOPOLOGY, two=LOG, three="just text\n")
    (tmp_path / "trace").write_bytes(TRACE.read_bytes())
    assert sorted(source.kind for source in read([tmp_path]).sources) == ["kineto", "nccl", "topology"]


def test_unknown_text_is_still_refused(tmp_path):
    with pytest.raises(PerfdoctorError, match="no recording that perfdoctor knows"):
        read(written(tmp_path, a="just text\n"))


def test_a_run_folder_brings_its_samples_and_logs_by_itself(tmp_path):
    folder = RunFolder.create(tmp_path / "run", Manifest(command=["python", "train.py"], passes=[PassRecord("torch")]))
    (folder.make("torch") / "rank0.pt.trace.json.gz").write_bytes(TRACE.read_bytes())
    begin = int(read([TRACE]).kernels.start_ns[0])
    rows = [
        ",".join(str({"unix_ns": begin + n * 1000, "device": 0, "power_mw": 300_000}.get(c, "")) for c in COLUMNS)
        for n in range(3)
    ]
    (folder.make("device") / "samples.csv").write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    (folder.make("nccl") / "rank0.log").write_text(LOG)
    (folder.make("nccl") / "rank1.log").write_text("")
    found = read([tmp_path / "run"])
    assert [source.kind for source in found.sources] == ["kineto", "nvml", "nccl"]
    assert found["device_samples"]["is_on_clock"].tolist() == [begin > 10**18] * 3
    assert found["device_samples"].floats("power_w").tolist() == [300] * 3


def test_samples_of_a_run_that_are_only_a_header_cost_a_note(tmp_path):
    folder = RunFolder.create(tmp_path / "run", Manifest(command=["python", "train.py"], passes=[PassRecord("torch")]))
    (folder.make("torch") / "rank0.pt.trace.json.gz").write_bytes(TRACE.read_bytes())
    (folder.make("device") / "samples.csv").write_text(",".join(COLUMNS) + "\n")
    found = read([tmp_path / "run"])
    assert [source.kind for source in found.sources] == ["kineto"]
    assert any("holds no samples" in note for note in found.notes)


@pytest.mark.parametrize("text", [TOPOLOGY, LOG, "index, power.draw [W]\n0, 5 W\n"])
def test_windows_line_ends_and_a_mark_of_byte_order_do_not_hide_a_file(tmp_path, text):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert len(read([tmp_path / "a"]).sources) == 1


@pytest.mark.parametrize("text", [TOPOLOGY, LOG * 50, "index, power.draw [W]\n" + "0, 5 W\n" * 50])
@pytest.mark.parametrize("garbage", ["\x00\x01\x02", "\x1b[31m[/]{}", "%s%n", "💥" * 100, ",,,,", "####", "GPU0 GPU0"])
def test_lines_of_garbage_do_not_cost_the_rest(tmp_path, text, garbage):
    first, *rest = text.splitlines()
    half = len(rest) // 2
    (tmp_path / "a").write_text("\n".join([first, *rest[:half], garbage, *rest[half:]]) + "\n")
    kind = "topology" if text == TOPOLOGY else "nccl" if "NCCL" in text else "nvml"
    row = formats.of_named(tmp_path / "a")
    row = row if row and row.join is side_files.joined else next(each for each in formats.FORMATS if each.kind == kind)
    assert row.read
    found = row.read(tmp_path / "a", silent, unheard)
    assert sum(len(found[signal]) for signal in MACHINE_SIGNALS) > 0
    assert json.dumps(found.notes)
