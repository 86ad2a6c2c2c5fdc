"""What a machine gave when it was measured joins the recording that it lies beside, and no other one."""

from __future__ import annotations

import json
import shutil

import pytest
from builders import draw
from folders import ROOT
from measured_builders import H100, document, matmuls, measurement, rates

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.hardware.measured import encoded
from perfdoctor.metrics.communication.link_baseline import baseline
from perfdoctor.readers.open import read
from perfdoctor.readers.side_files import with_rates
from perfdoctor.recording import machine_rates
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder
from perfdoctor.vocabulary.rulebook import load_rules

TRACE = ROOT / "fixtures" / "healthy" / "torch" / "rank0.pt.trace.json.gz"


@pytest.fixture
def run(tmp_path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "run", Manifest(perfdoctor="1", passes=[PassRecord("torch", state="done")]))
    shutil.copy(TRACE, folder.make("torch"))
    return folder


def name_of_the_gpu() -> str:
    return read([TRACE]).devices[0].name


def test_the_rates_beside_a_run_are_read_with_it(run):
    found = rates(*matmuls(bf16={8192: 200e12}), device=name_of_the_gpu())
    (run.make("device") / "measured.json").write_bytes(encoded(found))
    timeline = read([run.path])
    assert timeline.measured == (found,)
    notes = diagnose(timeline, ()).notes
    assert any("bf16 200 TFLOP/s" in note and "on 2026-11-22" in note for note in notes)


def test_a_damaged_file_costs_a_note_and_nothing_else(run):
    (run.make("device") / "measured.json").write_text(json.dumps(document())[:50])
    timeline = read([run.path])
    assert timeline.measured == ()
    assert any(note.startswith("measured.json is no document of measured rates") for note in timeline.notes)
    assert len(timeline.kernels)


def test_rates_of_this_machine_are_not_used_for_a_trace_from_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rules = list(load_rules().values())
    before = diagnose(read([TRACE]), rules)
    for driver in ("", "550.54.15"):
        measured = rates(*matmuls(bf16={8192: 1e12}, fp32={8192: 9e11}), device=name_of_the_gpu(), driver=driver)
        assert machine_rates.store(measured)
    assert diagnose(read([TRACE]), rules) == before


def test_links_of_nccl_are_measured_links_and_those_of_gloo_are_not():
    rows = [measurement("all_reduce", 360e9, bytes=1 << 28, ranks=8, backend="nccl")]
    timeline = with_rates(draw(kernels="##"), [rates(*rows)])
    found = baseline(timeline, "all_reduce", 8, 1 << 28)
    assert (found.bus_bytes_per_second, found.source) == (360e9, "perfdoctor selftest")
    assert timeline["link_tests"]["time_ns"].tolist() == [round(2 * 7 / 8 * (1 << 28) / 360)]
    assert baseline(timeline, "all_reduce", 8, 1 << 28, one_machine=False) is None
    assert baseline(timeline, "all_reduce", 4, 1 << 28) is None
    gloo = with_rates(
        draw(kernels="##"), [rates(measurement("all_reduce", 1e9, bytes=1 << 24, ranks=2, backend="gloo"))]
    )
    assert not len(gloo["link_tests"])
    assert "link_tests" not in gloo.recorded


def test_without_any_the_timeline_is_the_same():
    drawn = draw(kernels="##", gpu=H100)
    assert with_rates(drawn, []) is drawn
