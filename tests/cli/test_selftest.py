"""What does `perfdoctor selftest` print, write and end with? The checks are drawn; the machine is this one."""

from __future__ import annotations

import json
import sys

import pytest
from measured_builders import document, measurement
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.errors import PerfdoctorError
from perfdoctor.hardware.measured import parsed
from perfdoctor.recording import machine_rates
from perfdoctor.recording.launch.program import Program
from perfdoctor.recording.plan import Machine
from perfdoctor.recording.tools.nvml import Devices
from perfdoctor.selftest import hardware, order
from perfdoctor.selftest.checks import ToolCheck, Verdict
from perfdoctor.selftest.trials import Runner

WORKS = ToolCheck("torch.profiler", Verdict.WORKS, "10 steps of 32.0 ms, input-wait named first")
ABSENT = ToolCheck("nsys", Verdict.ABSENT, "not installed", "Install Nsight Systems.")
FAILED = ToolCheck("ncu", Verdict.FAILED, "ERR_NVGPUCTRPERM", "Run as root.")


@pytest.fixture
def selftest(monkeypatch, tmp_path):
    """`selftest(checks, *words)`: exit code, and what was printed."""
    monkeypatch.chdir(tmp_path)

    def run(checks, *words):
        monkeypatch.setattr(order.SelfTest, "checks", lambda _: iter(checks))
        result = CliRunner().invoke(app, ["selftest", *words])
        return result.exit_code, result.output

    return run


def test_each_check_has_its_line_and_the_last_one_can_be_pasted(selftest):
    code, printed = selftest([WORKS, ABSENT])
    assert code == 0
    assert "torch.profiler         works: 10 steps of 32.0 ms, input-wait named first" in printed
    assert "→ Install Nsight Systems." in printed
    last = printed.strip().splitlines()[-1]
    assert last.startswith("perfdoctor ")
    assert last.endswith("torch.profiler: ok")


def test_what_does_not_work_makes_the_exit_code_1(selftest):
    code, printed = selftest([WORKS, FAILED])
    assert code == 1
    assert "ncu: FAILED" in printed


def test_quiet_prints_the_line_for_a_report_alone(selftest):
    _, printed = selftest([WORKS], "--quiet")
    assert "10 steps" not in printed
    assert "torch.profiler: ok" in printed


def test_the_document_is_written_to_a_file_or_to_standard_output(selftest, tmp_path):
    selftest([WORKS, FAILED], "--json", "found.json", "--full")
    written = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert (written["format"], written["works"], written["full"]) == (1, False, True)
    assert [each["verdict"] for each in written["checks"]] == ["works", "does not work"]
    _, printed = selftest([WORKS, FAILED], "--json", "-")
    assert json.loads(printed)["checks"] == written["checks"]


def test_recordings_are_kept_where_asked_for_and_nothing_is_overwritten(selftest, tmp_path):
    assert selftest([WORKS], "--output", "kept")[0] == 0
    assert (tmp_path / "kept").is_dir()
    (tmp_path / "kept" / "mine").touch()
    code, printed = selftest([WORKS], "--output", "kept")
    assert code == 1
    assert "is not empty" in printed
    (tmp_path / "file").touch()
    assert "cannot be written" in selftest([WORKS], "--output", "file/below")[1]
    assert "cannot be written" in selftest([WORKS], "--json", "nowhere/found.json")[1]


def test_what_is_no_python_is_refused(selftest):
    code, printed = selftest([WORKS], "--python", "/bin/true")
    assert code == 1
    assert "is no Python that starts" in printed


# --- runs and rates ---


def test_a_plain_run_has_its_output_code_and_median_step(tmp_path):
    runner = Runner(tmp_path, {"PATH": "/usr/bin:/bin"})
    ran = runner.plain([sys.executable, "-c", "print('loss 1'); print('median step 12.50 ms'); raise SystemExit(3)"])
    assert (ran.code, ran.step_ms, ran.comparable_output) == (3, 12.5, "loss 1\n")
    assert runner.plain(["/no/such/program"]).code == 127


def test_a_recorded_run_has_a_folder_a_diagnosis_and_the_programs_code(tmp_path):
    runner = Runner(tmp_path, {"PATH": "/usr/bin:/bin"})
    ran = runner.recorded("exit-torch", "torch", [sys.executable, "-c", "print('hi'); raise SystemExit(7)"])
    assert (ran.code, ran.output) == (7, "hi\n")
    assert ran.folder == tmp_path / "exit-torch"
    assert (ran.step_ns(), ran.first_rule(), ran.finding("input-wait"), ran.reports("torch")) == (None, "", None, [])
    assert any("imported torch" in note for note in ran.notes)
    assert runner.what_if(ran, "input-wait") == {}


MACHINE = Machine(Program(("python",), torch="2.11.0"), None, None, Devices(), "")


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """`measured(document)`: the check of what the script printed; an error is raised instead."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def check(printed, *, quick=False):
        def measure(*_, **__):
            if isinstance(printed, PerfdoctorError):
                raise printed
            return parsed(json.dumps(printed), "printed")

        monkeypatch.setattr(machine_rates, "measure", measure)
        return hardware.measured(Runner(tmp_path, {}), MACHINE, "python", quick=quick)

    return check


def test_what_was_measured_is_shown_and_kept_for_later_diagnoses(measured):
    found = measured(document(measurement("memory_copy", 21e9)))
    assert found.verdict is Verdict.WORKS
    assert "memory 21.0 GB/s" in found.found
    assert machine_rates.stored("NVIDIA H100 80GB HBM3", "550.54.15", "2.9.0+cu128") is not None


def test_parts_that_failed_are_named(measured):
    failed = {"what": "matmul", "data_type": "bf16", "error": "RuntimeError: no kernel image"}
    found = measured({**document(measurement("memory_copy", 21e9)), "failed": [failed]})
    assert found.verdict is Verdict.LIMITED
    assert found.do == "Not measured: matmul bf16 (RuntimeError: no kernel image)"
    assert measured({**document(), "failed": [failed]}).verdict is Verdict.FAILED


def test_a_python_that_cannot_measure_says_what_to_do(measured):
    found = measured(PerfdoctorError("the machine cannot be measured", do="Give the Python that trains."))
    assert (found.verdict, found.do) == (Verdict.FAILED, "Give the Python that trains.")


def test_rates_that_cannot_be_kept_are_shown_all_the_same(measured, monkeypatch):
    monkeypatch.setattr(machine_rates, "store", lambda _: None)
    found = measured(document(measurement("memory_copy", 21e9)))
    assert found.verdict is Verdict.LIMITED
    assert "XDG_CACHE_HOME" in found.do
