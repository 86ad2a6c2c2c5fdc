"""How is Nsight Compute started, so that it measures exactly the kernels that matter and does not stop the training?

What is known of `ncu` (from its help of 2024.1, its documentation of 2023.2 to 2026.1, and published logs):

* It measures one kernel at a time and replays it several times. A kernel that waits for another rank never ends then,
  so the kernels to measure are named positively, and only one rank measures: the others never call cudaProfilerStart.
* `--kernel-name` matches the "function" name: no return type, namespace, template arguments or parameters. Many kernels
  share one: all of cutlass is `Kernel2` or `device_kernel`. A name that a collective shares is therefore left out.
* `--kernel-id …:invocation` takes a regex over invocation numbers, but does not document whether invocations before
  cudaProfilerStart count. Hence `--launch-count`, separately for each grid, block and shared memory size.
* Where it fails on a kernel (no permission, no driver resource) ncu *ends the program*: "Trying to shutdown target
  application". So look at `gpu_counters.permission_trouble` first, and at `program_code` afterwards for the program's
  own exit code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Timeline
from perfdoctor.patterns import regex
from perfdoctor.recording.tools.gpu_counters import PERMIT
from perfdoctor.system import tool_process
from perfdoctor.system.paths import write_whole
from perfdoctor.system.toml_tables import shipped_table
from perfdoctor.vocabulary.names.base_names import base_name
from perfdoctor.vocabulary.names.nccl import COLLECTIVE

#: A few hundred launches are exported in seconds.
EXPORT_TIMEOUT_S = 600
_HELP_TIMEOUT_S = 60
#: Environment variables that ncu gets, and no others. Without HOME it leaves no copy of its section files in the user's
#: Documents, as it does where it measures.
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR")
_NOT_STARTED = "Set PERFDOCTOR_NCU to the ncu program."

#: Without these it would measure every kernel of every rank, collectives too, and hang.
_REQUIRED = ("--kernel-name", "--profile-from-start", "--target-processes", "--export")

#: `  -o [ --export ] arg`, `  --set arg`: options are at the left, descriptions further right.
_TENSOR_ROOFLINE = "SpeedOfLight_HierarchicalTensorRooflineChart"
_OPTION = regex(r"^ {0,4}(?:-\w \[ )?(--[a-z][a-z0-9-]+)", re.MULTILINE)
#: ncu prints messages between the rows of its table.
_NOTICE = regex(rb"^==(?:PROF|WARNING|ERROR)==.*\n?", re.MULTILINE)
_VERSION = regex(r"^Version (\d+(?:\.\d+){1,2})", re.MULTILINE)


def version(ncu: str) -> str:
    """Its version, like 2024.1.1; "" if it is not printed. Raises PerfdoctorError where ncu cannot be started."""
    found = _VERSION.search(_output_of(ncu, "--version"))
    return found[1] if found else ""


@cache
def options(ncu: str) -> frozenset[str]:
    """The long options that this ncu has, like `--kernel-name`. Raises PerfdoctorError where it cannot be started."""
    return frozenset(_OPTION.findall(_output_of(ncu, "--help")))


@cache
def counts_tensor_flop(ncu: str) -> bool:
    """Does its section of the tensor cores' roofline count operations? Older ones count instructions.

    A metric of a section that a GPU does not have is left out with a warning, one of `--metrics` ends the recording.
    """
    try:
        return "sm__ops_path_tensor" in _output_of(ncu, "--section", _TENSOR_ROOFLINE, "--list-metrics")
    except PerfdoctorError:
        return False


def _output_of(ncu: str, *options: str) -> str:
    asked = " ".join(options)
    too_slow = PerfdoctorError(f"{ncu} {asked} printed nothing within {_HELP_TIMEOUT_S} seconds", do=_NOT_STARTED)
    _, output, _ = tool_process.run(
        [ncu, *options], environment=tool_process.environment(*_PASSED_ON), timeout_s=_HELP_TIMEOUT_S,
        not_started=_NOT_STARTED, too_slow=too_slow, merged=True,
    )  # fmt: skip
    return output.decode("utf-8", errors="replace")


def top_kernels(timeline: Timeline, count: int = 8) -> tuple[str, ...]:
    """The base names on which the devices of all ranks spent most time, most first. Never one of a collective.

    CUDA graphs recorded as a whole have no kernel's name and are left out.
    """
    kernels = timeline.kernels
    kernels = kernels.take(kernels["is_graph"] == 0)
    spent_ns = np.bincount(kernels.name.codes, weights=kernels.duration_ns, minlength=len(kernels.name.values))
    collectives = timeline.collectives.name  # after `take` a column still has the values of rows that were left out
    waiting = {base_name(collectives.values[code]) for code in np.unique(collectives.codes).tolist()}
    by_name_ns: Counter[str] = Counter()
    for code in np.flatnonzero(spent_ns).tolist():
        kernel = kernels.name.values[code]
        name = base_name(kernel)
        if COLLECTIVE.search(kernel) or COLLECTIVE.search(name):
            waiting.add(name)
        by_name_ns[name] += int(spent_ns[code])
    return tuple([name for name, _ in by_name_ns.most_common() if name and name not in waiting][:count])


def command(
    ncu: str, options: frozenset[str], report: Path, kernels: Sequence[str], launches: int, program: Sequence[str],
    *, tensor_flop: bool = False,
) -> list[str]:  # fmt: skip
    """The argv that measures `launches` executions of each size of each of `kernels` (base names) into `report`.

    `tensor_flop`: what tensor cores compute, too, where this ncu `counts_tensor_flop`.

    ncu's messages go into a file beside the report (`log_of`), so that they are not mixed with the program's output.
    Raises PerfdoctorError where this ncu lacks an option without which the program would hang.
    """
    assert kernels, "ncu without a list of kernels measures collectives too, and hangs"
    missing = [option for option in _REQUIRED if option not in options]
    if missing:
        raise PerfdoctorError(
            f"{ncu} does not know {', '.join(missing)}",
            do="Install Nsight Compute 2021.1 or newer, or leave this pass out.",
        )
    wanted = [
        *_kernel_options(kernels, launches, options),
        *_METRIC_OPTIONS,
        *([("--section", _TENSOR_ROOFLINE)] if tensor_flop else []),
        ("--force-overwrite",),
        ("--log-file", str(log_of(report))),
        ("--export", str(report).replace("%", "%%")),  # %p, %h and %q{…} are ncu's macros
    ]
    known = [words for words in wanted if words[0] in options]
    return [ncu, *(word for words in known for word in words), *program]


def log_of(report: Path) -> Path:
    """The file with ncu's messages, for `explain` and `program_code`; ncu writes it."""
    return report.with_name(f"{report.name}.log")


def _kernel_options(kernels: Sequence[str], launches: int, options: frozenset[str]) -> list[tuple[str, ...]]:
    # A count over all kernels would be used up by the first layers of the forward pass, before backward and optimizer.
    per_size = "--filter-mode" in options
    names = "|".join(_literally(kernel) for kernel in kernels)
    return [
        ("--config-file", "off"),  # a user's own config.ncu-cfg could widen the filters below
        ("--target-processes", "all"),
        ("--profile-from-start", "off"),
        ("--kernel-name-base", "function"),
        ("--kernel-name", f"regex:^({names})$"),
        ("--filter-mode", "per-launch-config"),
        ("--launch-count", str(launches if per_size else launches * len(kernels))),
        ("--kill", "no"),
        ("--check-exit-code", "yes"),  # ncu then prints the program's exit code, from which its own may differ
    ]


_METRIC_OPTIONS = (
    # basic (some 150 metrics) has neither roofline nor tensor cores; full (600) has a third more than detailed (450),
    # and of what it adds only the stalls are read.
    ("--set", "detailed"),
    ("--section", "WarpStateStats"),
    ("--section", "SchedulerStats"),
    ("--replay-mode", "kernel"),  # application replay would run the training again for each pass
    ("--graph-profiling", "node"),
    # The timeline was recorded with unlocked clocks: locked ones would give other durations, and slow down other users
    # of the GPU.
    ("--clock-control", "none"),
    ("--pipeline-boost-state", "dynamic"),
    # The default, made explicit: without flushing, metrics of different passes contradict each other. But a small
    # kernel whose input was still in L2 appears more memory-bound than it is.
    ("--cache-control", "all"),
)


def _literally(name: str) -> str:
    # Not re.escape: ncu's regular expressions are not Python's. All dialects understand a backslash before these; other
    # characters that are no letters (quotes, commas, spaces) are matched by any character.
    escaped = re.sub(r"[\\^$.*+?()\[\]{}|]", r"\\\g<0>", name)
    return re.sub(r"[^\w\\^$.*+?()\[\]{}|]", ".", escaped, flags=re.ASCII)


def export_csv(ncu: str, report: Path, target: Path) -> None:
    """All metrics of all measured launches, in base units, as CSV into `target`: whole, or not at all.

    Raises PerfdoctorError where ncu cannot read the report or takes longer than EXPORT_TIMEOUT_S.
    """
    try:
        write_whole(target, _raw_page(ncu, report))
    except OSError as error:
        raise PerfdoctorError(
            f"{target.name} cannot be written: {error.strerror or error}",
            do="Free some space there, or choose another folder.",
        ) from error


def _raw_page(ncu: str, report: Path) -> bytes:
    too_slow = PerfdoctorError(
        f"ncu did not export `{report.name}` within {EXPORT_TIMEOUT_S} seconds",
        do="Measure fewer kernels, or export the report by hand.",
    )
    code, output, errors = tool_process.run(
        [ncu, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"],
        environment=tool_process.environment(*_PASSED_ON), timeout_s=EXPORT_TIMEOUT_S, not_started=_NOT_STARTED,
        too_slow=too_slow,
    )  # fmt: skip
    table = _NOTICE.sub(b"", output).lstrip()
    if code == 0 and table.startswith(b'"ID",'):
        return table
    text = (output + errors).decode("utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    why = explain(text) or (lines[-1][:200] if lines else "it printed nothing")
    raise PerfdoctorError(
        f"ncu could not export `{report.name}`: {why}",
        do=f"Run ncu --import {report.name} --csv --page raw yourself. An old ncu cannot read a newer one's report.",
    )


_ERROR = regex(r"^==ERROR== *(.+)", re.MULTILINE | re.IGNORECASE)
_UNSPECIFIC = regex(
    r"An error was reported by|For more information|Failed to (?:profile|prepare)|An error occurred while"
    r"|The application returned|\AUse --list-sections"
)
_PROGRAM_FAILED = regex(r"The application returned an error code \((\d+)\)")
_ENDED_BY_NCU = "Trying to shutdown target application"


def explain(log_text: str) -> str | None:
    """What went wrong according to ncu's messages, with what to do, in one line; None if nothing did."""
    for known in shipped_table(Path(__file__).with_name("ncu_trouble.toml"))["trouble"]:
        if re.search(known["message"], log_text):
            return str(known["meaning"]).replace("{permit}", PERMIT)
    errors = _ERROR.findall(log_text)
    specific = next((error for error in errors if not _UNSPECIFIC.search(error)), "")
    if specific:
        return f"ncu reports: {specific.strip()[:200]}"
    if (failed := _PROGRAM_FAILED.search(log_text)) and _ENDED_BY_NCU not in log_text:
        return f"the program ended with {failed[1]} under ncu: run it without ncu and fix that first"
    if errors:
        return f"ncu reports: {errors[0].strip()[:200]}"
    if "No kernels were profiled" in log_text:
        return "none of the chosen kernels ran while ncu measured: record more steps"
    return None


def program_code(ncu_code: int, log_text: str) -> int | None:
    """The program's own exit code, None if it is unknown: ncu failed or ended the program.

    ncu prints the code of a program that failed; of one that a signal ended it prints the signal's bare number.
    """
    if _ENDED_BY_NCU in log_text:
        return None
    if failed := _PROGRAM_FAILED.search(log_text):
        return int(failed[1])
    return 0 if ncu_code == 0 else None
