"""--cross-check compares the right numbers with nsys, and prints what differs and what cannot be done."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from folders import ROOT
from real_nsys import nsys
from typer.testing import CliRunner

from perfdoctor.cli.main import app

STRAGGLER = ROOT / "fixtures" / "straggler" / "nsys"
KINETO = ROOT / "fixtures" / "straggler" / "torch"


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["analyze", *map(str, arguments), "--no-html"])
    assert result.exit_code == code, result.output
    return result


def stand_in(folder: Path, answers: dict[str, str]) -> Path:
    """A program called like nsys, which prints the given text for each summary."""
    cases = "\n".join(f'  *"-r {name}"*) cat {folder}/{name}.csv;;' for name in answers)
    for name, text in answers.items():
        (folder / f"{name}.csv").write_text(text, "utf-8")
    program = folder / "nsys"
    program.write_text(
        f'#!/bin/sh\ncase "$* " in\n  --version*) echo "NVIDIA Nsight Systems version 2099.1.2-x";;\n{cases}\n'
        f'  recipe*) [ -e {folder}/$2.csv ] || {{ echo "no module named pandas" >&2; exit 1; }}\n'
        f"    mkdir -p $6; cp {folder}/$2.csv $6/all_stats.csv;;\n"
        '  *) echo "SKIPPED: profile.sqlite does not contain such data.";;\nesac\n',
        "utf-8",
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def checked(tmp_path, monkeypatch):
    def answer(**answers):
        monkeypatch.setenv("PERFDOCTOR_NSYS", str(stand_in(tmp_path, answers)))
        return run(STRAGGLER, "--cross-check").stdout

    return answer


MEM_TIME = "Time (%),Total Time (ns),Count,Avg (ns),Operation\n"


def test_a_kineto_trace_is_refused_before_any_work_with_what_to_do():
    result = run(KINETO, "--cross-check", code=1)
    assert result.stdout == ""
    assert "--cross-check needs a recording of Nsight Systems" in result.stderr
    assert "→ Pass a .nsys-rep" in result.stderr


def test_without_nsys_it_is_refused_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.delenv("PERFDOCTOR_NSYS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run(STRAGGLER, "--cross-check", code=1)
    assert "--cross-check needs nsys, and none is installed here" in result.stderr
    assert "PERFDOCTOR_NSYS" in result.stderr


def test_a_difference_is_listed_with_both_numbers_and_costs_no_exit_code(checked):
    out = checked(cuda_gpu_mem_time_sum=MEM_TIME + "100.0,12,3,4.0,[CUDA memcpy Host-to-Device]\n")
    assert "with nsys 2099.1.2" in out
    assert re.search(r"h2d: perfdoctor 64 rows, [\d,]+ ns · nsys 3 rows, 12 ns", out)
    assert re.search(r"memset: perfdoctor 32 rows, [\d,]+ ns · nsys none", out)


def test_what_nsys_refuses_is_printed_and_is_no_difference(checked):
    out = checked()
    assert "kernels by name (stats cuda_gpu_kern_sum): not compared: SKIPPED: profile.sqlite does not contain" in out
    assert "cuda_api_sync: not checked: SKIPPED" in out
    assert "nothing could be compared." in out


def test_names_of_a_recording_and_of_nsys_are_printed_without_control_characters(checked):
    out = checked(cuda_gpu_kern_sum="Time (%),Total Time (ns),Instances,Name\n100.0,99999999999,1,\x1b[31mevil\n")
    assert "evil" in out
    assert "\x1b" not in out


def test_versions_in_the_names_of_calls_are_no_difference(checked):
    out = checked(cuda_api_sum="Time (%),Total Time (ns),Num Calls,Name\n9.9,1,1,cudaLaunchKernel_v7000\n")
    assert "cudaLaunchKernel: perfdoctor" in out
    assert "cudaLaunchKernel_v7000" not in out


def test_expert_rules_are_shown_beside_our_findings(checked):
    out = checked(gpu_gaps="\nRow#,Duration (ns),Start (ns)\n1,600000000,5\n")
    assert re.search(r"gpu_gaps: 1 row, 600.000 ms\n +perfdoctor: 0 gaps of 500 ms or more, 0.000 ms; ", out)


def test_json_stays_parsable_and_the_check_goes_to_standard_error(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFDOCTOR_NSYS", str(stand_in(tmp_path, {})))
    result = run(STRAGGLER, "--cross-check", "--json", "-")
    assert json.loads(result.stdout)["format"] == 1
    assert "Cross-check of profile.sqlite" in result.stderr


def test_quiet_prints_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFDOCTOR_NSYS", str(stand_in(tmp_path, {})))
    lines = run(STRAGGLER, "--cross-check", "--quiet").stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("Cross-check of profile.sqlite with nsys")


# --- with the real one ---


@pytest.mark.nsys
@pytest.mark.parametrize(
    "case",
    [
        "straggler",
        "cuda-graphs",
        *(pytest.param(case, marks=pytest.mark.thorough) for case in ("sync-drains-queue", "pageable")),
    ],
)
def test_all_sums_of_a_fixture_agree_with_the_real_nsys(case, monkeypatch):
    monkeypatch.setenv("PERFDOCTOR_NSYS", nsys())
    out = run(ROOT / "fixtures" / case / "nsys", "--cross-check").stdout
    verdict = re.search(r"(\d+) of (\d+) summaries agree", out)
    assert verdict, out
    assert verdict[1] == verdict[2], out
    assert int(verdict[2]) >= 3
    assert " · nsys" not in out.partition("Cross-check")[2]


# --- recipes ---


@pytest.fixture
def report(tmp_path):
    """A report with its export beside it."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    (folder / "profile.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report 2099@1@2@3-x\0")
    return shutil.copy(STRAGGLER / "profile.sqlite", folder / "profile.sqlite")


def test_a_recipe_s_sums_are_compared_with_ours(report, tmp_path, monkeypatch):
    tables = {
        "cuda_gpu_kern_sum": 'Name,Time,Total Time,Instances,Avg\n"left<int, ""a"">",100.0,7,2,3.5\n',
        "nccl_sum": ",Count,Mean,Sum\nncclAllReduce,3,3.0,9.0\n",  # pandas' index without a name
    }
    for name, table in tables.items():
        (tmp_path / f"{name}.csv").write_text(table, "utf-8")
    monkeypatch.setenv("PERFDOCTOR_NSYS", str(stand_in(tmp_path, {})))
    out = run(report, "--cross-check", "--all").stdout
    assert 'left<int, "a">: perfdoctor none · nsys 2 rows, 7 ns' in out
    assert "ncclAllReduce: perfdoctor none · nsys 3 rows, 9 ns" in out
    assert sorted(path.name for path in Path(report).parent.iterdir()) == ["profile.nsys-rep", "profile.sqlite"]


def test_a_recipe_that_cannot_run_gives_the_reason_once(report, tmp_path, monkeypatch):
    monkeypatch.setenv("PERFDOCTOR_NSYS", str(stand_in(tmp_path, {})))
    out = run(report, "--cross-check").stdout
    assert out.count("nsys recipe cannot run here: no module named pandas") == 1


def test_an_export_alone_has_no_recipes(checked):
    assert checked().count("nsys recipe reads reports only") == 1
