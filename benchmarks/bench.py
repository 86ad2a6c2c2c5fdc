"""How fast is a diagnosis, against a peer and against the floor, in one run? `make bench`.

Each contestant runs in a process of its own, in turn, several times; what counts is the ratio within a round, so that a
noisy machine slows all of them. Times are from the first byte read; imports are not counted, peak memory is the whole
process's. The peer, HolisticTraceAnalysis, is installed into an environment of its own under .cache/.
"""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from labels import recordings

_ROOT = Path(__file__).parents[1]
_PEER = _ROOT / ".cache" / "bench-venv"
_ROUNDS = 5

_MEASURE = """
import json, sys, time
{setup}
begun = time.perf_counter()
{work}
taken = time.perf_counter() - begun
with open("/proc/self/status") as status:  # not ru_maxrss, which a child inherits from its parent
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(json.dumps([taken, peak]))
"""
_OURS = _MEASURE.format(
    setup="""import importlib, pkgutil
from pathlib import Path
import numpy.ma
import perfdoctor.detectors
for module in pkgutil.walk_packages(perfdoctor.detectors.__path__, "perfdoctor.detectors."):  # as for the peer, imports come before the clock
    importlib.import_module(module.name)
from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.readers.open import read
from perfdoctor.vocabulary.rulebook import load_rules""",
    work="diagnose(read([Path(sys.argv[1])]), list(load_rules().values()))",
)
_HTA = _MEASURE.format(
    setup="""import logging, os
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis""",
    work="TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))",
)
_JSON = _MEASURE.format(
    setup="import gzip, json as decoder",
    work="""data = open(sys.argv[1], 'rb').read()
decoder.loads(gzip.decompress(data) if data[:2] == b'\\x1f\\x8b' else data)""",
)


def _peer_python() -> Path | None:
    python = _PEER / "bin" / "python"
    if not python.exists():
        venv.create(_PEER, with_pip=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "HolisticTraceAnalysis==0.5.0"],
            check=False,
            stderr=subprocess.DEVNULL,
        )
    works = (
        subprocess.run([python, "-c", "import hta.trace_analysis"], check=False, capture_output=True).returncode == 0
    )
    return python if works else None


def _once(python: Path | str, program: str, file: Path) -> tuple[float, float]:
    """Seconds and peak MB."""
    done = subprocess.run([python, "-c", program, file], check=True, capture_output=True, text=True, cwd=file.parent)
    taken, peak_kb = json.loads(done.stdout.strip().splitlines()[-1])
    return taken, peak_kb / 1024


def large_trace(folder: Path, events: int = 400_000) -> Path:
    """A trace of our own making: ops, launches and kernels in steps, with the arguments a real one has."""
    rows, clock, number = [], 0.0, 0
    while len(rows) < events:
        if number % 2_000 == 0:
            rows.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number // 2_000}", "pid": 1, "tid": 1,
                         "ts": clock, "dur": 60_000.0, "args": {"External id": number}})  # fmt: skip
        number += 1
        where = {"pid": 1, "tid": 1}
        rows.append({"ph": "X", "cat": "cpu_op", "name": f"aten::op_{number % 60}", **where, "ts": clock, "dur": 25.125,
                     "args": {"External id": number, "Ev Idx": number, "Input Dims": [[64, 1024], [1024, 1024]],
                              "Input type": ["float", "float"]}})  # fmt: skip
        rows.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **where, "ts": clock + 5, "dur": 6.5,
                     "args": {"External id": number, "cbid": 211, "correlation": number}})  # fmt: skip
        rows.append({"ph": "X", "cat": "kernel", "name": f"void at::native::kernel_{number % 60}<float>(int, float*)",
                     "pid": 0, "tid": 7, "ts": clock + 15, "dur": 12.25, "args": {
                         "External id": number, "device": 0, "context": 1, "stream": 7, "correlation": number,
                         "registers per thread": 32, "shared memory": 0, "grid": [64, 1, 1], "block": [256, 1, 1]}})  # fmt: skip
        clock += 30.0
    document = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "deviceProperties": [
        {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000, "computeMajor": 8, "computeMinor": 0, "numSms": 108}],
        "traceEvents": rows}  # fmt: skip
    file = folder / "generated-400k-events.json.gz"
    file.write_bytes(gzip.compress(json.dumps(document).encode(), compresslevel=1, mtime=0))
    return file


def _compare(file: Path, peer: Path | None) -> None:
    contestants: list[tuple[str, Path | str, str]] = [("perfdoctor, to the diagnosis", sys.executable, _OURS)]
    if peer is not None:
        contestants.append(("HolisticTraceAnalysis, load", peer, _HTA))
    contestants.append(("json.loads alone", sys.executable, _JSON))
    rounds = [[_once(python, program, file) for _, python, program in contestants] for _ in range(_ROUNDS)]
    print(f"\n{file.name}, {file.stat().st_size / 1e6:.1f} MB")
    for index, (name, _, _) in enumerate(contestants):
        seconds = statistics.median(each[index][0] for each in rounds)
        ratio = statistics.median(each[index][0] / each[0][0] for each in rounds)
        peak = statistics.median(each[index][1] for each in rounds)
        print(f"  {name:32s} {seconds:7.2f} s   {ratio:5.1f} × ours   peak {peak:6.0f} MB")


def main() -> None:
    peer = _peer_python()
    if peer is None:
        print("HolisticTraceAnalysis could not be installed: without the peer.")
    folder = recordings()
    with tempfile.TemporaryDirectory() as scratch:
        files = [large_trace(Path(scratch))]
        if folder is not None:
            files += [
                folder / "kineto" / "v100-rank1-of-2.json.gz",
                folder / "kineto" / "resnet50-workers0.pt.trace.json.gz",
            ]
        for file in files:
            _compare(file, peer)


if __name__ == "__main__":
    main()
