"""The real Nsight Compute, on a machine without a GPU: it takes our command lines, and refuses in words that we know."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from real_tools import installed

from perfdoctor.readers.ncu import metric_names
from perfdoctor.readers.ncu.metric_names import Launch
from perfdoctor.recording.launch import program_run as launch
from perfdoctor.recording.tools import ncu

HOSTILE = ["gemm", "a|b(.*)$", "x,y '<", "</script>[/]", "operator()", "\\", "[", "k{2}"]
#: What ncu prints where its command line, its section files or its names of kernels do not fit.
REFUSED = ("unrecognised option", "is invalid", "did not match any", "No metrics to collect", "Invalid regex")
NO_DRIVER = "found no NVIDIA driver"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ncu copies its section files into it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path


def run(folder: Path, *words: str) -> str:
    """ncu with these options around a program, with `words` before it: all that it prints."""
    command = [installed("ncu"), *words, "--export", str(folder / "r"), sys.executable, "-c", ""]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_a_program_that_ncu_could_not_start_runs_without_it_and_its_exit_code_is_kept(home: Path) -> None:
    tool, report, log = installed("ncu"), home / "kernels.ncu-rep", home / "ncu.log"
    known = ncu.options(tool)
    around = launch.ProfilerCommand(lambda program: ncu.command(tool, known, report, HOSTILE, 2, program), log)
    program = [sys.executable, "-c", f"open({str(home / 'ran')!r}, 'a').write('.'); raise SystemExit(3)"]
    ended = launch.run(program, dict(os.environ), tool=around, time_limit_s=60)
    assert (ended.code, ended.alone, (home / "ran").read_text()) == (3, True, ".")
    said = log.read_text() + ncu.log_of(report).read_text()
    assert not any(words in said for words in REFUSED)
    assert NO_DRIVER in str(ncu.explain(said))
    assert "The application returned an error code (1).\n==WARNING== No kernels were profiled.\n" in said


@pytest.mark.parametrize(
    ("options", "meaning"),
    [
        (["--section", "Nothing"], "--section-folder-restore"),
        (["--set", "nothing"], "--section-folder-restore"),
        (["--nothing", "1"], "ncu reports: unrecognised option '--nothing'"),
        (["--replay-mode", "nothing"], "ncu reports: the argument for option '--replay-mode' is invalid"),
        (["--kernel-name", "regex:^(a"], "ncu reports: Invalid regex provided to --kernel option"),
    ],
)
def test_what_ncu_does_not_take_is_said_in_its_words(home: Path, options: Sequence[str], meaning: str) -> None:
    # Of an unknown set it says that no metrics were found, and goes on to look for a driver.
    said = run(home, *options).replace("Nsight Compute failed to connect to the CUDA driver", "")
    assert meaning in str(ncu.explain(said))


def test_the_sections_that_we_record_hold_a_metric_for_each_number_that_we_read() -> None:
    tool = installed("ncu")
    argv = ncu.command(tool, ncu.options(tool), Path("r"), ["a"], 1, [])
    which = [word for at, word in enumerate(argv) if {"--set", "--section"} & {word, argv[at - 1]}]
    done = subprocess.run([tool, *which, "--list-metrics"], capture_output=True, text=True, check=True, env={})
    listed = {line.strip(" -") for line in done.stdout.splitlines()}
    columns: Mapping[str, Mapping[str, Sequence[str]]] = metric_names._known()["column"]
    assert [name for name, column in columns.items() if not listed & set(column["names"])] == []


def test_this_ncu_counts_instructions_of_tensor_cores_and_no_operations() -> None:
    assert not ncu.counts_tensor_flop(installed("ncu"))


def test_the_names_of_what_tensor_cores_compute_are_those_of_the_chips() -> None:
    command = [installed("ncu"), "--query-metrics", "--chips", "gv100,tu102,ga100,ad102,gh100"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env={}).stdout
    names = [line.split()[0] for line in printed.splitlines() if line.startswith("sm__ops_path_tensor_src_")]
    types = {name: metric_names.tensor_type(Launch("k", metrics={f"{name}.sum": [(1.0, "")]})) for name in names}
    assert set(types.values()) == {"fp16", "bf16", "tf32", "fp64", "fp8", ""}
    assert all("_int" in name for name, kind in types.items() if not kind)


#: Sentences of ncu, and what we make of them. `%u`: the number of a device.
SENTENCES = {
    "ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device %u."
    " For instructions on enabling permissions": "NVreg_RestrictProfilingToAdminUsers=0",
    "The user does not have permission to access NVIDIA GPU Performance Counters on the target vGPU device %u.": "enable_profiling=1",
    "Profiling permission not granted; see https://developer.nvidia.com/nvidia": "NVreg_RestrictProfilingToAdminUsers=0",
    "Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM)": "dcgmi profile --pause",
    "Profiling failed because a driver resource was unavailable or the user does not have permission to": "not permitted",
    "Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] on path?).": NO_DRIVER,
    "Insufficient driver version to profile on device %u.": "does not fit this ncu",
    "LibraryNotLoaded": "does not fit this ncu",
    "Profiling is not supported on device %u. To find out supported GPUs refer --list-chips option.": "does not know the GPU",
    "Profiling is not supported on device %u as it uses the Windows Subsystem for Linux (WSL).": "WSL",
    "Profiling is not supported on device %u as it is part of an active SLI group.": "SLI",
    "Confidential computing mode detected on device %u.": "confidential computing",
    "Protected memory mode detected on device %u.": "protected memory",
    "ERR_NVCMPGPU - Profiling is not supported on the NVIDIA Crypto Mining Processors": "mining card",
    "Failed to open/create lock file %s. Please check that this process has write permissions": "lock file",
    "InterprocessLockFailed": "lock file",
    "Insufficient free memory for profiling on the device.": "no memory left to replay",
    "Failed to find metric ": "has none of a metric",
    "No section files found in search paths.": "--section-folder-restore",
    "The application returned an error code (%u).": "the program ended with",
    "Trying to shutdown target application": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def programs() -> Iterator[list[mmap.mmap]]:
    """ncu itself, and the libraries that it loads into the program."""
    wrapper = Path(installed("ncu"))
    root = wrapper.parents[1] / "root" / "usr" / "lib" / "x86_64-linux-gnu" / "nsight-compute" / "target"
    files = [file for file in root.glob("*/*") if file.suffix in ("", ".so")]
    if not files:
        pytest.skip("this ncu does not come from scripts/install-ncu")
    with ExitStack() as stack:
        opened = [stack.enter_context(file.open("rb")) for file in files]
        yield [stack.enter_context(mmap.mmap(each.fileno(), 0, access=mmap.ACCESS_READ)) for each in opened]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_refusal_is_recognised_word_by_word(programs: list[mmap.mmap], sentence: str) -> None:
    assert any(program.find(sentence.encode()) >= 0 for program in programs)
    said = f"==ERROR== {sentence.replace('%u', '0').replace('%s', '/tmp/nsight-compute-lock')}\n"
    assert SENTENCES[sentence] in str(ncu.explain(said))
