"""Which tool wrote a file that perfdoctor does not read, and what is recorded instead?

Known by marks that only that tool writes, among the first bytes of the file. The first one that fits is named.
"""

from __future__ import annotations

import re

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex

TORCH = "record with torch.profiler and pass the file that prof.export_chrome_trace writes"
_BESIDE = f"pass it beside the recording of the same training; without one, {TORCH}"
_NSYS = "record with Nsight Systems: perfdoctor run -- COMMAND"
_SNAPSHOT = 'pass the snapshot itself: torch.cuda.memory._dump_snapshot("snapshot.pickle")'


class OtherTool(Struct, frozen=True):
    """A tool by the marks in its files. `what` follows "is"; `do` says what to pass or to record instead."""

    mark: re.Pattern[bytes]
    what: str
    do: str = TORCH


def _tool(mark: bytes, what: str, do: str = TORCH) -> OtherTool:
    return OtherTool(regex(mark, re.MULTILINE), what, do)


OTHER_TOOLS = (
    # Chrome's format, written by others than PyTorch
    _tool(rb'"rocprofiler-sdk-tool"\s*:', "JSON of rocprofv3 (rocprofiler-sdk)"),
    _tool(rb'"viztracer_metadata"\s*:', "a trace of VizTracer, which records Python alone"),
    _tool(rb'"product-version"\s*:\s*"\w*Chrom|"ThreadControllerImpl::', "a trace of the browser Chrome"),
    _tool(rb'"hlo_(op|module)"\s*:|/job:\w+/replica:|"/device:(GPU|TPU):\d',
          "a trace of JAX or TensorFlow (XLA)", _NSYS),
    _tool(rb'"CUDAExecutionProvider"|"\w*_kernel_time"', "a profile of ONNX Runtime", _NSYS),
    _tool(rb'"(BeginNs|DurationNs)"\s*:', "a trace of rocprof or hipprof"),
    _tool(rb'"zeCommandList\w+"|"ze(Event|Module|Kernel)\w+"', "a trace of Intel's unitrace or VTune (Level Zero)"),
    _tool(rb'"(atrace|systemTraceEvents|androidProcessDump)"', "a trace of Android or Perfetto"),
    # other JSON
    _tool(rb'"\$schema"\s*:\s*"[^"]*speedscope|"shared"\s*:\s*\{\s*"frames"\s*:',
          "a speedscope file (py-spy writes such), which samples the host alone", _BESIDE),
    _tool(rb'"cat"\s*:\s*"py-spy"', "a Chrome trace of py-spy, which samples the host alone", _BESIDE),
    _tool(rb'"(TraceProcessEvent|CudaEvent|NvtxEvent)"\s*:', "what `nsys export --type json` writes",
          "pass the .nsys-rep itself, or what `nsys export --type sqlite` makes of it"),
    _tool(rb'"root_frame"\s*:', "a profile of pyinstrument, which samples the host alone"),
    _tool(rb'"elapsed_time_sec"\s*:', "a profile of Scalene, which samples the host alone"),
    _tool(rb'^\{"meta":\{"[^}]*"interval":|"preprocessedProfileVersion"', "a profile for the Firefox Profiler"),
    # samples of the host, and traces of the kernel
    _tool(rb"\A\x17\x08\x44tracing|\Acpus=\d+$", "a trace of trace-cmd (ftrace), which records the Linux kernel alone"),
    _tool(rb"\APERFILE2", "a recording of Linux perf, which samples the host alone"),
    _tool(rb"\A(#.*\n)*\S.{0,40}? +\d+(/\d+)? +(\[\d+\] +)?\d+\.\d+: +(\d+ +)?[\w:./-]+: *$",
          "the output of `perf script`, which samples the host alone"),
    _tool(rb"\A(\S[^;\n]*;)+[^;\n]+ \d+$|\A[^\n]*\([^;()\n]+:\d+\) \d+$",
          "a list of collapsed stacks (perf, py-spy), which samples the host alone", _BESIDE),
    _tool(rb"\A[\x7b\xfb][\x28\x29\xa8\xa9]", "a profile of cProfile, which records Python alone"),
    # memory
    _tool(rb"MemoryViz\.js|add_local_files|_memory_viz", "the page that memory_viz draws of a snapshot", _SNAPSHOT),
    _tool(rb"\Av \d+ [\da-f]+\nX |\A\x28\xb5\x2f\xfd.*heaptrack",
          "a recording of heaptrack: the host's memory", _SNAPSHOT),
    _tool(rb"\Amemray|<title>memray", "a recording of memray, which is of the host's memory", _SNAPSHOT),
    # others
    _tool(rb"DeepSpeed Flops Profiler", "the text of DeepSpeed's flops profiler, which holds no timeline"),
    _tool(rb"brain\.Event:\d", "TensorBoard's log of scalars", "pass the .pt.trace.json beside it, if there is one"),
    _tool(rb"\A,?rank,.*(idle|compute|overlap)", "a table of HolisticTraceAnalysis",
          "pass the traces that it was made of"),
    _tool(rb"\A<\?xml[^>]*>\s*<session", "a session of the Visual Profiler (nvprof, retired)", _NSYS),
    _tool(rb"\A\n[\x00-\xff]{0,64}?/(device|host):[A-Z]{3}", "an XPlane protobuf of JAX or TensorFlow (XLA)", _NSYS),
    _tool(rb"\A\n[\x80-\xff][\x00-\x7f][\x08\x42\x50\xda\xe2]", "a protobuf, as Perfetto and others write"),
    _tool(rb'\A\{\s*"format"\s*:\s*\d+,\s*"perfdoctor"\s*:', "a result that perfdoctor wrote",
          "pass the recording that it was made of; the command `perfdoctor analyze` prints a diagnosis.json again, and "
          "`compare` takes it as well"),
    _tool(rb"(?i)\A\s*(<!doctype html|<html)", "a web page", "pass the recording that it was made of"),
)  # fmt: skip


def refusal(file: str, head: bytes) -> PerfdoctorError | None:
    """The error that says what `file` is, by its first bytes, decompressed; None where that is not known."""
    tool = next((tool for tool in OTHER_TOOLS if tool.mark.search(head)), None)
    return PerfdoctorError(f"`{file}` is {tool.what}, and no trace of PyTorch", do=tool.do) if tool else None
