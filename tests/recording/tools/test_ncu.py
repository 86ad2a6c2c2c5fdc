from __future__ import annotations

import csv
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from builders import timeline
from hypothesis import given
from hypothesis import strategies as st
from tables import of_each

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.tools import ncu
from perfdoctor.system import tool_process

HELP_2024 = """\
NVIDIA (R) Nsight Compute Command Line Profiler
usage: ncu [options] [program] [program-arguments]

General Options:
  -h [ --help ]                         Print this help message.
  -v [ --version ]                      Print the version information and exit.
  --config-file arg (=1)                Use config.ncu-cfg config file to set parameters.

Launch Options:
  --check-exit-code arg (=1)            Check the application exit code and print an error if it is different than 0.
                                        If set, --replay-mode application will stop after the first pass if the exit
                                        --not-an-option is described here
  --target-processes arg (=all)         Select the processes you want to profile:

Common Profile Options:
  --kill arg (=0)                       Terminate the target application when the requested --launch-count was profiled.
  --replay-mode arg (=kernel)           Mechanism used for replaying a kernel launch multiple times.
  --graph-profiling arg (=node)         CUDA graph profiling mode.
  --set arg                             Identifier of section set to collect.
  --profile-from-start arg (=1)         Set if application should be profiled from its start.
  --cache-control arg (=all)            Control the behavior of the GPU caches during profiling.
  --clock-control arg (=base)           Control the behavior of the GPU clocks during profiling.

Filter Profile Options:
  --filter-mode arg (=global)           Set the filtering mode for kernel launches.
  -k [ --kernel-name ] arg              Filter the kernel.
  --kernel-name-base arg (=function)    Set the basis for --kernel-name, and --kernel-id kernel-name.
  -c [ --launch-count ] arg             Limit the number of profiled kernel launches.
  --section arg                         Collect the section.

File Options:
  --log-file arg                        Send all tool output to the specified file.
  -o [ --export ] arg                   Set the output file for writing the profile report.
  -f [ --force-overwrite ]              Force overwriting all output files.
  -i [ --import ] arg                   Set the input file for reading the profile results.
"""
TABLE = '"ID","Process ID","Kernel Name","gpu__time_duration.sum"\n"","","","ns"\n"0","7","f<1, 2>(int)","1024"\n'
PERMISSION = (
    "==PROF== Connected to process 1 (/usr/bin/python3)\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0.\n==PROF== Trying to shutdown target application\n"
    "==ERROR== The application returned an error code (9).\n"
)


@pytest.fixture
def stand_in(tmp_path: Path):
    """Makes a scripted `ncu` that prints --help and --version, writes down its argv, and runs `script` on --import."""

    def make(script: str = "", text: str = HELP_2024) -> str:
        folder = tmp_path / f"bin{len(list(tmp_path.glob('bin*')))}"
        folder.mkdir()
        (folder / "help").write_text(text)
        (folder / "table").write_text(TABLE)
        program = folder / "ncu"
        program.write_text(
            f"""#!/bin/sh
            case "$1" in
            --help) cat {folder}/help; echo asked >> {folder}/asked ;;
            --version) echo "NVIDIA (R) Nsight Compute Command Line Profiler"; echo "Copyright (c) 2018-2024"
                       echo "Version 2024.1.1.0 (build 33998838) (public-release)" ;;
            *) printf '%s\\n' "$@" > {folder}/argv; cd {folder}; {script or "cat table"} ;;
            esac
            """
        )
        program.chmod(0o755)
        return str(program)

    return make


def test_ncu_comes_from_the_environment_before_path(stand_in, monkeypatch):
    on_path = stand_in()
    monkeypatch.delenv("PERFDOCTOR_NCU", raising=False)
    monkeypatch.setenv("PATH", f"{Path(on_path).parent}:/usr/bin:/bin")
    assert tool_process.find("ncu") == on_path
    monkeypatch.setenv("PERFDOCTOR_NCU", "/opt/other/ncu")
    assert tool_process.find("ncu") == "/opt/other/ncu"
    monkeypatch.delenv("PERFDOCTOR_NCU")
    monkeypatch.setenv("PATH", "/nowhere")
    assert tool_process.find("ncu") is None


def test_the_version_has_three_parts(stand_in):
    assert ncu.version(stand_in()) == "2024.1.1"


def test_options_are_read_once_and_not_out_of_descriptions(stand_in):
    tool = stand_in()
    found = ncu.options(tool)
    assert {"--kernel-name", "--export", "--set", "--import", "--help"} <= found
    assert "--not-an-option" not in found
    assert ncu.options(tool) is found
    assert (Path(tool).parent / "asked").read_text() == "asked\n"


def test_an_ncu_that_cannot_be_started_is_an_error_that_names_the_variable():
    with pytest.raises(PerfdoctorError) as error:
        ncu.options("/nowhere/ncu")
    assert error.value.what == "/nowhere/ncu cannot be started: No such file or directory"
    assert "PERFDOCTOR_NCU" in error.value.do


@of_each(
    ("kernel", "name"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)",
            "vectorized_elementwise_kernel",
        ),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16>(Params)", "Kernel2"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_cublas", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_cublas"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("void at::native::(anonymous namespace)::layer_norm<float>(float const*)", "layer_norm"),
        ("(anonymous namespace)::bare(int)", "bare"),
        ("<unnamed>::bare(int)", "bare"),
        ("std::enable_if<true, void>::type ns::k<3>(int)", "k"),
        ("decltype(auto) ns::k<&ns::x::y>(int)", "k"),
        ("void A::B<x>::operator()(int) const", "operator()"),
        ("void my_operator<int>(x)", "my_operator"),
        ("void f<&(A::operator<), (x->y), (a >> 2), (b < c)>(int)", "f"),
        ("void f<G<H<int>>, (cudnnKernelDataType_t)0>(float (*)(int))", "f"),
        (
            "void at::native::unrolled_elementwise_kernel<at::native::f(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda(float)#2}, std::array<char*, 2ul>>(int, {lambda(float)#2})",
            "unrolled_elementwise_kernel",
        ),
        ("void ns::k(int) [clone .isra.0]", "k"),
        ("void ns::cut_off<float, at::nat", "cut_off"),
        ("</script>", "</script>"),
        ("", ""),
    ],
)
def test_the_base_name_is_ncus_function_name(kernel, name):
    assert ncu.base_name(kernel) == name


SIGNATURES = st.text("ab:_<>()[]{} -,&*~|$\\\n operator", max_size=40)


@given(st.one_of(st.text(max_size=60), SIGNATURES))
def test_any_text_has_a_base_name_that_is_its_own(kernel):
    name = ncu.base_name(kernel)
    assert bool(name) == bool(kernel.strip())
    assert ncu.base_name(name) or not name


def kernel(name: str, spent_ns: int, **columns) -> dict[str, object]:
    return {"name": name, "start_ns": 0, "end_ns": spent_ns, **columns}


def test_top_kernels_sum_over_instantiations_and_ranks():
    run = timeline(
        kernels=[
            kernel("void gemm<1>(int)", 60, rank=0),
            kernel("void gemm<2>(int)", 50, rank=1),
            kernel("add", 100),
            kernel("tiny", 1),
            kernel("nothing", 0),
        ]
    )
    assert ncu.top_kernels(run) == ("gemm", "add", "tiny")
    assert ncu.top_kernels(run, count=2) == ("gemm", "add")


def test_top_kernels_hold_no_collective_and_no_graph():
    run = timeline(
        kernels=[
            kernel("cudaGraphLaunch", 900, is_graph=True),
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 800),
            kernel("void deep_ep::intranode::dispatch<8>(int)", 700),
            kernel("void moe::dispatch<4>(int)", 650),
            kernel("void vendor::device_kernel<gemm>(int)", 600),
            kernel("gemm", 500),
        ],
        collectives=[kernel("void vendor::device_kernel<all_gather>(int)", 10)],
    )
    assert ncu.top_kernels(run) == ("gemm",)


def test_a_run_without_kernels_has_no_top_kernels():
    assert ncu.top_kernels(timeline(kernels=[])) == ()


def test_the_command_measures_named_kernels_of_one_rank_and_leaves_clocks_alone(stand_in):
    tool = stand_in()
    argv = ncu.command(
        tool,
        ncu.options(tool),
        Path("runs/ncu/rank0.ncu-rep"),
        ["gemm", "add_0"],
        3,
        ["python", "train.py", "--set", "x"],
    )
    assert argv == [
        tool,
        *("--config-file", "off"),
        *("--target-processes", "all"),
        *("--profile-from-start", "off"),
        *("--kernel-name-base", "function"),
        *("--kernel-name", "regex:^(gemm|add_0)$"),
        *("--filter-mode", "per-launch-config"),
        *("--launch-count", "3"),
        *("--kill", "no"),
        *("--check-exit-code", "yes"),
        *("--set", "detailed"),
        *("--section", "WarpStateStats"),
        *("--section", "SchedulerStats"),
        *("--replay-mode", "kernel"),
        *("--graph-profiling", "node"),
        *("--clock-control", "none"),
        *("--cache-control", "all"),
        "--force-overwrite",
        *("--log-file", "runs/ncu/rank0.ncu-rep.log"),
        *("--export", "runs/ncu/rank0.ncu-rep"),
        *("python", "train.py", "--set", "x"),
    ]


@pytest.mark.parametrize(("listed", "counts"), [("sm__ops_path_tensor_src_fp16.sum", True), ("sm__inst.sum", False)])
def test_what_tensor_cores_compute_is_counted_by_an_ncu_whose_section_does(stand_in, listed, counts):
    tool = stand_in(f"echo {listed}")
    assert ncu.counts_tensor_flop(tool) is counts
    assert not ncu.counts_tensor_flop("/nowhere/ncu")
    argv = ncu.command(tool, ncu.options(tool), Path("r"), ["a"], 1, [], tensor_flop=counts)
    assert ("SpeedOfLight_HierarchicalTensorRooflineChart" in argv) is counts


def test_the_command_reaches_ncu_as_it_is(stand_in):
    tool = stand_in("exit 3")
    argv = ncu.command(tool, ncu.options(tool), Path("r"), ["a|b", "</script>"], 1, ["python", "a b", "$HOME", ""])
    assert subprocess.run(argv, check=False).returncode == 3
    assert (Path(tool).parent / "argv").read_text().split("\n")[:-1] == argv[1:]


def test_options_that_this_ncu_does_not_have_are_left_out():
    few = frozenset({"--kernel-name", "--profile-from-start", "--target-processes", "--export", "--launch-count"})
    argv = ncu.command("ncu", few, Path("r"), ["a", "b"], 3, ["python"])
    assert set(argv) & {"--graph-profiling", "--kill", "--filter-mode", "--config-file", "--section"} == set()
    # Without a count for each size, there is one for all.
    assert argv[argv.index("--launch-count") + 1] == "6"
    assert argv[-3:] == ["--export", "r", "python"]


def test_an_ncu_that_cannot_choose_kernels_is_not_started():
    with pytest.raises(PerfdoctorError, match="does not know --kernel-name") as error:
        ncu.command(
            "ncu", frozenset({"--profile-from-start", "--target-processes", "--export"}), Path("r"), ["a"], 1, []
        )
    assert "2021.1" in error.value.do


def test_a_percent_sign_in_the_folder_is_no_macro_of_ncus():
    few = frozenset({"--kernel-name", "--profile-from-start", "--target-processes", "--export"})
    argv = ncu.command("ncu", few, Path("100%q{HOME}/r"), ["a"], 1, ["python"])
    assert argv[argv.index("--export") + 1] == "100%%q{HOME}/r"


def regex_of(*names: str) -> re.Pattern[str]:
    few = frozenset({"--kernel-name", "--profile-from-start", "--target-processes", "--export"})
    argv = ncu.command("ncu", few, Path("r"), names, 1, ["python"])
    return re.compile(argv[argv.index("--kernel-name") + 1].removeprefix("regex:"))


@pytest.mark.parametrize("hostile", ["a|b(.*)$", "</script>", ".*", "(", "a)|(.*", "[", "\\", "x,y", "$"])
def test_a_hostile_name_does_not_break_out_of_the_regex(hostile):
    pattern = regex_of("gemm", hostile)
    assert pattern.search("gemm")
    assert pattern.search(hostile)
    assert not pattern.search("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    assert not pattern.search("gemm_other")
    assert not pattern.search("my_gemm")


@given(st.text(st.characters(exclude_characters="\n"), min_size=1, max_size=30))
def test_each_name_matches_itself_and_nothing_longer(name):
    pattern = regex_of(name)
    assert pattern.fullmatch(name)
    assert not pattern.search(f"{name}x")
    assert not pattern.search(f"x{name}")


def test_an_export_is_the_raw_page_in_base_units(stand_in, tmp_path):
    tool = stand_in("echo '==PROF== Importing'; cat table; echo '==WARNING== Some rules were not found'")
    target = tmp_path / "kernels.csv"
    ncu.export_csv(tool, tmp_path / "a b.ncu-rep", target)
    assert target.read_text() == TABLE
    assert list(csv.reader(target.open()))[2][2] == "f<1, 2>(int)"
    assert (Path(tool).parent / "argv").read_text().split("\n")[:-1] == [
        *("--import", str(tmp_path / "a b.ncu-rep")),
        *("--csv", "--page", "raw", "--print-units", "base"),
    ]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("head -c 20 table; exit 1", '"ID","Process ID","K'),
        ("echo '==ERROR== Failed to load report file'; exit 1", "ncu reports: Failed to load report file"),
        ("echo '==WARNING== No kernels were profiled.'", "none of the chosen kernels ran"),
        ("exit 0", "it printed nothing"),
    ],
)
def test_a_failed_export_leaves_nothing_behind(stand_in, tmp_path, script, why):
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(PerfdoctorError) as error:
        ncu.export_csv(stand_in(script), tmp_path / "r.ncu-rep", folder / "kernels.csv")
    assert error.value.what.startswith("ncu could not export `r.ncu-rep`: ")
    assert why in error.value.what
    assert list(folder.iterdir()) == []


def test_a_failed_export_keeps_the_one_before(stand_in, tmp_path):
    target = tmp_path / "kernels.csv"
    target.write_text("before")
    with pytest.raises(PerfdoctorError):
        ncu.export_csv(stand_in("exit 1"), tmp_path / "r.ncu-rep", target)
    assert target.read_text() == "before"


def test_an_export_that_takes_too_long_is_ended_with_all_that_it_started(stand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(ncu, "EXPORT_TIMEOUT_S", 0.5)
    tool = stand_in("sh -c 'echo $$ > child; exec sleep 600'; cat table")
    with pytest.raises(PerfdoctorError, match="did not export"):
        ncu.export_csv(tool, tmp_path / "r.ncu-rep", tmp_path / "kernels.csv")
    child = int((Path(tool).parent / "child").read_text())
    assert _ends(child)
    assert not (tmp_path / "kernels.csv").exists()


def _ends(process: int) -> bool:
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{process}/stat").read_text().split(")")[1].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_an_export_into_a_missing_folder_is_an_error_with_what_to_do(stand_in, tmp_path):
    with pytest.raises(PerfdoctorError, match="cannot be written: No such file"):
        ncu.export_csv(stand_in(), tmp_path / "r.ncu-rep", tmp_path / "nowhere" / "kernels.csv")


@pytest.mark.parametrize(
    ("log", "meaning"),
    [
        (PERMISSION, "NVreg_RestrictProfilingToAdminUsers=0"),
        (
            "==ERROR== An error was reported by the driver\n==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no\n",
            "dcgmi profile --pause",
        ),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.\n", "does not fit this ncu"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded.\n", "does not fit this ncu"),
        ("==ERROR== Failed to open/create lock file /tmp/nsight-compute-lock.\n", "set TMPDIR"),
        ("==ERROR== Failed to prepare kernel for profiling\n==ERROR== Unknown Error on device 0.\n", "Unknown Error on device 0."),
        ("==ERROR== The application returned an error code (1).\n==WARNING== No kernels were profiled.\n", "ended with 1"),
        ("==PROF== Disconnected from process 7\n==WARNING== No kernels were profiled.\nAvailable Kernels:\n", "record more steps"),
    ],
)  # fmt: skip
def test_ncus_messages_are_explained_in_one_line(log, meaning):
    explained = ncu.explain(log)
    assert explained is not None
    assert meaning in explained
    assert "\n" not in explained


def test_a_log_without_trouble_needs_no_explanation():
    assert ncu.explain('==PROF== Profiling "f" - 0: 0%....50%....100% - 8 passes\n==PROF== Report: r.ncu-rep\n') is None
    assert ncu.explain("") is None


@given(st.text(max_size=80))
def test_no_log_makes_the_explanation_fail(log):
    ncu.explain(log)
    ncu.program_code(1, log)


@pytest.mark.parametrize(
    ("code", "log", "programs"),
    [
        (0, "==PROF== Report: r.ncu-rep\n", 0),
        (3, "==ERROR== The application returned an error code (3).\n", 3),
        (1, "==ERROR== The application returned an error code (3).\n", 3),
        (1, "==ERROR== Unknown Error on device 0.\n", None),
        (9, PERMISSION, None),
        (-9, "", None),
    ],
)
def test_the_programs_exit_code_is_the_one_that_ncu_prints(code, log, programs):
    assert ncu.program_code(code, log) == programs
