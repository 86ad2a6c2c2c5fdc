"""Which checks run, in which order, and when is there no time left for more?"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.recording import plan
from perfdoctor.recording.plan import Machine
from perfdoctor.recording.tools import nsys, py_spy
from perfdoctor.selftest import chain, hardware
from perfdoctor.selftest.checks import ToolCheck, Verdict
from perfdoctor.selftest.obstacles import divided_gpu
from perfdoctor.selftest.trials import STEPS, Plain, RecordedTrial, Runner
from perfdoctor.vocabulary.examples import Example, load_examples

#: The training of the first checks: its fault shows on every machine, with a GPU and without.
FIRST = "slow_input"
#: Two ranks of it exchange gradients.
RANKS = "exposed_communication"
#: On a GPU its kernels are few and long: what ncu measures, it measures quickly.
KERNELS = "fp32_matmuls"
_EXIT_CODE = 7


class SelfTest(Struct):
    """One run of the self-test. `python` trains; `announce` is called with what begins; checks are yielded as they end.

    `seconds`: no new training is begun after them.
    """

    machine: Machine
    python: str
    runner: Runner
    full: bool
    seconds: float
    announce: Callable[[str], None]
    measure: Callable[..., ToolCheck] = hardware.measured
    sampler: py_spy.PySpy = field(default_factory=py_spy.find)
    began: float = field(default_factory=time.monotonic)
    recorded: dict[str, RecordedTrial] = field(default_factory=dict)

    def checks(self) -> Iterator[ToolCheck]:
        if not self.machine.program.torch:
            what = (
                f"{self.python} has no torch" if self.machine.program.was_inspected else f"{self.python} does not start"
            )
            yield ToolCheck("torch", Verdict.FAILED, what, "Give the Python that trains: --python PROGRAM")
            return
        yield from self._gpu()
        yield from self._passes()
        yield from self._ranks()
        yield hardware.memory_snapshot(self.runner, self.python, has_gpu=self.machine.has_gpu)
        self.announce("what this machine gives")
        yield self.measure(self.runner, self.machine, self.python, quick=not self.full)
        yield from self._examples()

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self.began > self.seconds

    # --- the machine ---

    def _gpu(self) -> Iterator[ToolCheck]:
        devices, program = self.machine.devices, self.machine.program
        if not devices.gpus:
            yield ToolCheck("GPU", Verdict.ABSENT, devices.trouble or "none")
            return
        names = [gpu.name for gpu in devices.gpus]
        self.announce("asking torch for the GPU")
        asked = self.runner.plain([self.python, "-c", _USE_GPU])
        found = f"{len(names)} × {names[0]}, driver {devices.driver}, torch {program.torch} for CUDA {program.cuda}"
        if asked.code == 0:
            works, divided = ToolCheck("GPU", Verdict.WORKS, found), divided_gpu(names)
            yield chain.with_limits(works, divided.what, divided.do) if divided else works
            return
        failed = chain.failed("GPU", asked.errors + asked.output, "torch cannot use it", asked.seconds)
        yield replace(failed, found=f"{found}: {failed.found}")

    # --- one training through each pass ---

    def _passes(self) -> Iterator[ToolCheck]:
        training = load_examples()[FIRST]
        self.announce(f"{FIRST}: without perfdoctor")
        plain = [self._plain(training)]
        self.announce(f"{FIRST}: torch.profiler")
        by_torch = self._recorded(training, "torch")
        yield self._checked("torch.profiler", by_torch, training)
        by_nsys = self._by_nsys(training)
        yield self._nsys_checked(training, by_nsys)
        if by_nsys and self.machine.has_gpu:
            yield chain.counters_sampled(self.machine.counters, by_nsys)
        if by_nsys:
            yield chain.same_step(by_torch, by_nsys, ("torch.profiler", "nsys"))
        yield from self._counters()
        yield self._samples(by_torch)
        yield chain.own_lines(self.sampler, by_torch, training.rule)
        if self.full:
            self._plain_again(training, plain)
        yield self._untouched(training, plain, [each for each in (by_torch, by_nsys) if each])
        yield self._overhead(training, plain, by_torch)
        self.announce(f"{FIRST}: its fixed twin")
        fixed = [self._plain(training, fixed=True)]
        yield chain.prediction_kept("prediction", self.runner.what_if(by_torch, training.rule), by_torch, plain, fixed)

    def _by_nsys(self, training: Example) -> RecordedTrial | None:
        """The training recorded by nsys; None where there is no nsys that could record."""
        if self.machine.nsys is None or self.machine.nsys.trouble:
            return None
        self.announce(f"{FIRST}: nsys")
        return self._recorded(training, "nsys")

    def _nsys_checked(self, training: Example, ran: RecordedTrial | None) -> ToolCheck:
        tool = self.machine.nsys
        if tool is None:
            return ToolCheck("nsys", Verdict.ABSENT, "not installed", "Install Nsight Systems, or set PERFDOCTOR_NSYS.")
        if ran is None:
            return chain.failed("nsys", tool.trouble, tool.trouble)
        return self._checked("nsys", ran, training, _tool_notes(ran, tool))

    def _plain_again(self, training: Example, plain: list[Plain]) -> None:
        self.announce(f"{training.name}: once more without perfdoctor")
        plain.append(self._plain(training))

    def _untouched(self, training: Example, plain: list[Plain], recorded: list[RecordedTrial]) -> ToolCheck:
        """Compare output and exit codes with those of two runs without perfdoctor: its own runs may differ."""
        exits = list(self._exits([each.folder.name.rpartition("-")[2] for each in recorded]))
        found = chain.untouched(plain, recorded, exits)
        if found.verdict is Verdict.FAILED and len(plain) == 1:
            self._plain_again(training, plain)
            found = chain.untouched(plain, recorded, exits)
        return found

    def _checked(
        self, name: str, ran: RecordedTrial, training: Example, limits: tuple[str, str] = ("", "")
    ) -> ToolCheck:
        environment = self.runner.environment
        if self.machine.has_gpu and ran.diagnosis:
            missing = chain.kernels_recorded(name, ran, environment)
            if missing:
                return missing
        return chain.with_limits(chain.recording(name, ran, training.rule, environment), *limits)

    def _exits(self, passes: list[str]) -> Iterator[tuple[str, int, int]]:
        """Exit codes of programs that end in other ways than well, with and without perfdoctor."""
        for number, (kind, code, script) in enumerate(_ENDINGS):
            for name in passes if self.full else passes[number % len(passes) :][:1]:
                self.announce(f"{chain.ending(code)} under {name}")
                yield name, code, self.runner.recorded(f"{kind}-{name}", name, [self.python, "-c", script]).code

    def _overhead(self, training: Example, plain: list[Plain], recorded: RecordedTrial) -> ToolCheck:
        """Repeat the check up to three rounds: what perfdoctor costs shows in each, a disturbed machine does not."""
        found = chain.overhead(plain, recorded)
        for again in range(2, _ROUNDS + 1):
            if found.verdict is not Verdict.LIMITED or self.is_over:
                break
            self.announce(f"{training.name}: overhead, round {again}")
            plain.append(self._plain(training))
            command = self._command(training, fixed=False)
            found = chain.overhead(plain[-1:], self.runner.recorded(f"{training.name}-torch-{again}", "torch", command))
        return found

    # --- what only a GPU has ---

    def _counters(self) -> Iterator[ToolCheck]:
        if self.machine.ncu is None:
            what = "Only needed to measure inside kernels: install Nsight Compute."
            yield ToolCheck("ncu", Verdict.ABSENT, "not installed", what)
        elif not self.machine.has_gpu:
            yield ToolCheck("ncu", Verdict.ABSENT, "it measures kernels of a GPU, and there is none")
        elif self.machine.ncu_trouble:
            yield chain.failed("ncu", self.machine.ncu_trouble, self.machine.ncu_trouble)
        else:
            yield self._kernels_measured()

    def _kernels_measured(self) -> ToolCheck:
        self.announce(f"{KERNELS}: ncu")
        ran = self._recorded(load_examples()[KERNELS], "torch,ncu")
        if any(each.get("kind") == "ncu" for each in ran.diagnosis.get("run", {}).get("sources", ())):
            return ToolCheck("ncu", Verdict.WORKS, f"kernels of {KERNELS} measured", "", ran.seconds)
        return chain.failed("ncu", "\n".join([ran.messages, *ran.notes]), "no kernel was measured", ran.seconds)

    def _samples(self, ran: RecordedTrial) -> ToolCheck:
        if not self.machine.has_gpu:
            return ToolCheck("GPU samples", Verdict.ABSENT, "NVML samples a GPU, and there is none")
        file = ran.folder / "device" / "samples.csv"
        rows = sum(1 for _ in file.open("r", encoding="utf-8")) - 1 if file.is_file() else 0
        if rows > 0:
            return ToolCheck("GPU samples", Verdict.WORKS, f"{rows} rows of clocks, power and memory by NVML")
        do = "Check nvidia-smi; in a container, that the driver's folder is mounted."
        return ToolCheck("GPU samples", Verdict.FAILED, "NVML wrote no samples", do)

    # --- several ranks ---

    def _ranks(self) -> Iterator[ToolCheck]:
        training = load_examples()[RANKS]
        gpus = len(self.machine.devices.gpus)
        how = "NCCL" if gpus > 1 else "gloo"
        self.announce(f"{RANKS}: two ranks")
        ran = self._recorded(training, "torch")
        ranks = {row.get("rank") for row in ran.diagnosis.get("time", ())}
        if ran.code == 0 and len(ranks) == 2:
            log = list(ran.folder.glob("nccl/*.log"))
            yield ToolCheck("two ranks", Verdict.WORKS, f"both recorded, {how} between them", "", ran.seconds)
            if gpus > 1:
                yield _nccl_log(log)
            return
        yield chain.failed("two ranks", ran.messages, f"{len(ranks)} of 2 ranks were recorded", ran.seconds)

    # --- every example ---

    def _examples(self) -> Iterator[ToolCheck]:
        if not self.full:
            return
        for training in load_examples().values():
            if self.is_over:
                yield ToolCheck(
                    training.name, Verdict.ABSENT, "left out: the time was up", "Give it more: --seconds N."
                )
                continue
            yield self._example(training)

    def _example(self, training: Example) -> ToolCheck:
        if not self.machine.has_gpu and training.cannot_show:
            return ToolCheck(training.name, Verdict.ABSENT, f"a processor cannot show it: {training.cannot_show}")
        self.announce(f"{training.name}: slow, and its fixed twin")
        plain, fixed = [self._plain(training)], [self._plain(training, fixed=True)]
        ran = self._recorded(training, self._best_pass())
        self._recorded(training, self._best_pass(), fixed=True)
        named = chain.recording(training.name, ran, training.rule, self.runner.environment)
        if training.saves_no_time:
            return named
        if not ran.finding(training.rule) and chain.saves_nothing(plain, fixed):
            return chain.does_not_show(named, ran.step_ns())
        kept = chain.prediction_kept(training.name, self.runner.what_if(ran, training.rule), ran, plain, fixed)
        return chain.both(named, kept)

    def _best_pass(self) -> str:
        """What `perfdoctor run` takes by default."""
        passes = plan.make(self.machine, None, self.runner.folder).passes
        return passes[0] if passes else "torch"

    # --- programs ---

    def _plain(self, training: Example, *, fixed: bool = False) -> Plain:
        return self.runner.plain(self._command(training, fixed=fixed))

    def _recorded(self, training: Example, passes: str, *, fixed: bool = False) -> RecordedTrial:
        """Record once for all checks that ask for it."""
        name = f"{training.name}{'_fixed' if fixed else ''}-{passes.replace(',', '-')}"
        if name not in self.recorded:
            self.recorded[name] = self.runner.recorded(name, passes, self._command(training, fixed=fixed))
        return self.recorded[name]

    def _command(self, training: Example, *, fixed: bool) -> list[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(training.ranks)]
        script = training.fixed if fixed else training.slow
        return [self.python, *(launcher if training.ranks > 1 else ()), str(script), "--steps", str(STEPS)]


_ROUNDS = 3
#: (name, exit code, program): an error, and an end by a signal, which a parent sees as a negative number.
_ENDINGS = (
    ("exit", _EXIT_CODE, f"raise SystemExit({_EXIT_CODE})"),
    ("signal", -signal.SIGTERM, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"),
)
_USE_GPU = "import torch; print(torch.ones(2, device='cuda').sum().item(), torch.cuda.get_device_name())"


def _tool_notes(ran: RecordedTrial, tool: nsys.Nsys) -> tuple[str, str]:
    """What nsys could not do although it recorded, and what to do; "" for both if it could."""
    if nsys.keeps_environment(tool):
        return (
            f"Nsight Systems {tool.version} stores all environment variables in its report",
            "Update Nsight Systems to 2025 or newer before you share its reports.",
        )
    raw = [each.name for each in ran.folder.glob("nsys/*.qdstrm")]
    return (f"only the raw stream {raw[0]} was kept", "Install its host part and libssh.") if raw else ("", "")


def _nccl_log(files: list[Path]) -> ToolCheck:
    if files:
        return ToolCheck("NCCL log", Verdict.WORKS, f"{len(files)} ranks wrote what NCCL chose")
    return ToolCheck(
        "NCCL log", Verdict.FAILED, "NCCL wrote no log", "Unset NCCL_DEBUG and NCCL_DEBUG_FILE for a recording."
    )
