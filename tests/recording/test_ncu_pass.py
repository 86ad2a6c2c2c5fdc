"""The pass with Nsight Compute: its report and table are in the run folder, and the program's exit code is its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from faulty_runs import NCU

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording import plan
from perfdoctor.recording.launch.program import Program
from perfdoctor.recording.record import Session
from perfdoctor.recording.tools.nvml import Devices
from perfdoctor.recording.tools.torch_profiler import StepWindow
from perfdoctor.system.run_folder import Manifest, RunFolder

#: What the stand-in for ncu prints as a table, and what it writes as a report.
TABLE, REPORT = """printf '"ID","Kernel Name"\\n"0","k"\\n'""", """printf 'NVR' > "$out" """


def session(folder: Path, code: int = 0, report: str = REPORT, table: str = TABLE) -> Session:
    tool = folder / "ncu"
    assert TABLE in NCU
    assert REPORT in NCU
    tool.write_text(NCU.replace(TABLE, table).replace(REPORT, report or ": "))
    tool.chmod(0o755)
    command = (sys.executable, "-c", f"import sys; print('trained', flush=True); sys.exit({code})")
    program = Program(command, sys.executable, python="3.11.1", torch="2.13", was_inspected=True)
    known = plan.Machine(program, None, str(tool), Devices((), "", "no NVIDIA driver here"), "")
    run = RunFolder.create(folder / "run", Manifest(perfdoctor="1", command=list(command)))
    return Session(command, {}, plan.Plan(known, ("ncu",)), StepWindow(steps=3, sampling=False), run)


def test_the_report_and_its_table_are_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = session(tmp_path)
    assert run.record("ncu", ("gemm",)).code == 0
    assert "trained" in capfd.readouterr().out
    (record,) = run.folder.manifest.passes
    assert (record.name, record.tool_version, record.state) == ("ncu", "2024.1.1", "done")
    report, table = record.files
    assert (Path(report).suffix, Path(table).suffix) == (".ncu-rep", ".csv")
    assert (run.folder.path / table).read_text().startswith('"ID","Kernel Name"')


def test_a_program_that_fails_ends_with_its_code_and_is_said(tmp_path: Path) -> None:
    run = session(tmp_path, code=7, report="")
    assert run.record("ncu", ("gemm",)).code == 7
    (record,) = run.folder.manifest.passes
    assert record.files == []
    assert any("the program ended with 7 under ncu" in note for note in record.notes)


def test_a_report_that_makes_no_table_leaves_the_pass_failed(tmp_path: Path) -> None:
    run = session(tmp_path, table="echo 'no such report'")
    with pytest.raises(PerfdoctorError, match="ncu could not export"):
        run.record("ncu", ("gemm",))
    assert [record.state for record in run.folder.manifest.passes] == ["failed"]
