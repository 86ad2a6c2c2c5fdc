"""A process that samples the Python stacks of trainings from outside, when their agents ask for it.

    python -m perfdoctor.recording.sampling.sampler REQUESTS FOLDER BUDGET PY_SPY

REQUESTS is a FIFO. Agents write a line each time, whole (pipe(7): writes of up to 4 kB are not torn):

    begin PID PROCESSES WORKER…     sample PID and its loader's workers; PROCESSES are sampled on this machine in all
    end PID BEGIN_NS END_NS         the recorded steps of PID began and ended at these times since 1970

py-spy reads another process's memory (process_vm_readv) and does not stop it (--nonblocking). It writes one file for
each process into FOLDER; `sampled.jsonl` there says what each one is. Where Yama restricts ptrace, an agent permits it
to this process and its children; the kernel takes that back when this process ends (admin-guide/LSM/Yama.rst).

This process ends, and ends what it has started, when its standard input is closed: when `perfdoctor run` ends it, or
ends itself for whatever reason; then FOLDER is removed as well, as nobody else would.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from perfdoctor.recording.launch.processes import end_with_parent
from perfdoctor.recording.sampling.counts import READ_S, SampleClock, cores_used

#: Processor time of one sample: py-spy took 0.22 to 0.28 ms for a plain loop, 0.40 to 0.56 ms for Lightning's and
#: transformers' trainers, whose stacks are deep, on a busy machine (EPYC at 2.2 GHz).
SAMPLE_S = 0.000_5
#: More often than this brings nothing: shares of a step of some ms are known to a few per cent by then.
MOST_HERTZ, LEAST_HERTZ = 200, 10
#: A window that is still open then is no window of some steps.
_LONGEST_S = 600
#: py-spy writes its file when it is interrupted; that takes some ms.
_WRITING_S = 5.0
INDEX = "sampled.jsonl"
#: What `perfdoctor run` writes when nothing more is to be sampled.
ENOUGH = b"e"


def ready_file(folder: Path, pid: int) -> Path:
    """The file that exists as soon as py-spy samples this process, or has failed to."""
    return folder / f"ready-{pid}"


def hertz(budget: float, processes: int) -> int:
    """Samples a second of each of so many processes, with which all take at most `budget` cores."""
    processes = max(processes, 1)
    left = budget - cores_used(processes)
    return int(min(max(left / SAMPLE_S / processes, LEAST_HERTZ), MOST_HERTZ))


class _Sampled:
    """py-spy on one process. `stem`: of the file that it writes, and of its log."""

    def __init__(self, py_spy: str, pid: int, rate: int, stem: Path) -> None:
        self.pid, self.rate, self.folder = pid, rate, stem.parent
        self.file, self.log = stem.with_suffix(".json"), stem.with_suffix(".log")
        self.ready_unix_ns = 0
        self.clock: SampleClock | None = None
        self.spawned_unix_ns = time.time_ns()
        # Idle threads too: a training that waits for its device is what is asked for.
        command: list[str | Path] = [
            py_spy, "record", "--pid", str(pid), "--rate", str(rate), "--nonblocking", "--idle", "--threads",
            "--full-filenames", "--duration", str(_LONGEST_S), "--format", "chrometrace", "--output", self.file,
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                preexec_fn=end_with_parent,  # noqa: PLW1509 there is one thread
            )  # fmt: skip
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()

    def read_output(self) -> bool:
        """Note that py-spy samples, or has ended. False if it will print no more."""
        said = os.read(self.output, 4096)
        if said and not self.ready_unix_ns:
            self.ready_unix_ns = time.time_ns()
            self.clock = SampleClock(self.process.pid)
        with contextlib.suppress(OSError):
            ready_file(self.folder, self.pid).touch()
        return bool(said)

    def note_samples(self) -> None:
        """Note the samples since the last time."""
        if self.clock:
            self.clock.read(time.time_ns())

    def interrupt(self) -> None:
        self.note_samples()
        self.process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Wait until its file is written."""
        try:
            self.process.communicate(timeout=_WRITING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        if self.clock:
            self.clock.close()

    def facts(self, training: int, begin_ns: int, end_ns: int) -> dict[str, object]:
        return {
            "pid": self.pid, "of": training, "hertz": self.rate, "file": self.file.name, "log": self.log.name,
            "spawned_unix_ns": self.spawned_unix_ns, "ready_unix_ns": self.ready_unix_ns,
            "begin_unix_ns": begin_ns, "end_unix_ns": end_ns,
            "taken_unix_ns": self.clock.taken_unix_ns if self.clock else [],
        }  # fmt: skip


class Sampler:
    """What is sampled now, by the training that asked for it. `talking`: those that may still say something."""

    def __init__(self, folder: Path, budget: float, py_spy: str) -> None:
        self.folder, self.budget, self.py_spy = folder, budget, py_spy
        self.sampled: dict[int, list[_Sampled]] = {}
        self.talking: dict[int, _Sampled] = {}
        self.count = 0

    def obey(self, line: str) -> None:
        """Do what one line asks for. A line that makes no sense is left out, as any program may write one."""
        word, *rest = line.split()
        numbers = [int(each) for each in rest]
        if word == "begin" and len(numbers) >= 2 and numbers[0] not in self.sampled:
            pid, processes, *workers = numbers
            rate = hertz(self.budget, processes)
            for each in (pid, *workers):
                self.count += 1
                started = _Sampled(self.py_spy, each, rate, self.folder / str(self.count))
                self.sampled.setdefault(pid, []).append(started)
                self.talking[started.output] = started
        elif word == "end" and len(numbers) == 3:
            self._end(*numbers)

    def note_samples(self) -> None:
        for sampled in self.sampled.values():
            for each in sampled:
                each.note_samples()

    def _end(self, pid: int, begin_ns: int = 0, end_ns: int = 0) -> None:
        ending = self.sampled.pop(pid, [])
        for each in ending:
            self.talking.pop(each.output, None)
            each.interrupt()
        for each in ending:
            each.end()
        with (self.folder / INDEX).open("a", encoding="utf-8") as index:
            for each in ending:
                print(json.dumps(each.facts(pid, begin_ns, end_ns)), file=index)

    def end_all(self) -> None:
        """End all sampling, and keep the samples: the processes were killed, or are about to be."""
        for pid in list(self.sampled):
            self._end(pid)


def main() -> None:
    """Read requests until the standard input is closed."""
    requests, folder, budget, py_spy = sys.argv[1:]
    sampler = Sampler(Path(folder), float(budget), py_spy)
    source, parent = os.open(requests, os.O_RDWR), sys.stdin.fileno()  # O_RDWR: no end when an agent closes it
    begun = b""
    while True:
        readable, _, _ = select.select([source, parent, *sampler.talking], [], [], READ_S if sampler.sampled else None)
        sampler.note_samples()
        for output in set(readable) & set(sampler.talking):
            if not sampler.talking[output].read_output():
                del sampler.talking[output]
        if source in readable:
            *lines, begun = (begun + os.read(source, 65_536)).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, OSError):
                    sampler.obey(line.decode("ascii"))
        if parent in readable:
            is_asked = os.read(parent, 1) == ENOUGH
            sampler.end_all()
            if not is_asked:
                shutil.rmtree(folder, ignore_errors=True)
            return
