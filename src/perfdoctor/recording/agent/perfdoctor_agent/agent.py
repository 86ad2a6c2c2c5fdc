"""When does this process train, when is it recorded, and when is the trace written?

    torch imported ── steps seen ──┬── warm-up ──┬── recorded steps ──┬── trace written ── steps timed ── steps noted
                      (skipped)    └ one step    └ ranges on          └ the program goes on, or ends (settings: stop)

Steps are counted by torch's global hook after every optimizer's update. A program without an optimizer does inference,
or updates its parameters by hand if it runs backward passes. There the outermost modules' forwards and the backward
passes are counted each for itself, as a model and a loss are both modules: the rhythm decides which is the step.
A program that marks its steps itself is believed, whatever else comes.

The module is long because it is one state machine, with all ways in which a program may end.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfdoctor_agent import identity, nvtx, private, trial
from perfdoctor_agent.foreign import Foreign
from perfdoctor_agent.loaders import LoaderWatch
from perfdoctor_agent.memory import MemorySamples
from perfdoctor_agent.modules import ModuleMarks
from perfdoctor_agent.pace import StepEnds, unrecorded
from perfdoctor_agent.passes import BackwardWatch, ForwardWatch, ShortForwards
from perfdoctor_agent.processor import ProcessorUse
from perfdoctor_agent.ranges import RangeHooks
from perfdoctor_agent.recorder import Recorder
from perfdoctor_agent.report import AgentReport
from perfdoctor_agent.sampling import Sampling
from perfdoctor_agent.step_finder import Numbers, StepFinder
from perfdoctor_agent.step_range import NAME as STEP_RANGE
from perfdoctor_agent.step_range import StepRangeWatch
from perfdoctor_agent.whole_run import WholeRun
from perfdoctor_agent.window_end import WindowEnd

if TYPE_CHECKING:
    from perfdoctor_agent.treated import Treated

_BACKWARD = "backward"
_DOUBT = (
    "what ends a step is not certain, as several kinds of events come, each in a rhythm of its own, or none evenly: "
    f'mark your steps with `with torch.profiler.record_function("{STEP_RANGE}"):`, and they are taken for the steps'
)
#: After so many outermost forwards of a step is asked whether it is worth recording still.
_FORWARDS = 16
FAILED = "perfdoctor's agent failed: "
_NOT_STARTED = "the program uses its own torch.profiler: perfdoctor's was not started"
#: Signals that end a program by default, and after which it may still write: a job's end, a terminal that was closed.
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """An error in the agent ends the agent and is reported; the program never sees it."""

    @functools.wraps(method)
    def call(self: Agent, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.give_up(f"{type(error).__name__}: {error}")
            return None

    return call


class Agent:
    """The agent of one process. Settings come as JSON in PERFDOCTOR_AGENT, see recording/tools/torch_profiler.py."""

    @classmethod
    def start(cls, torch: Any) -> None:
        settings = json.loads(os.environ["PERFDOCTOR_AGENT"])
        if settings.get("while") and not os.path.exists(settings["while"]):
            return  # what the command had left behind has started this program: the recording is over
        treated = None
        if settings.get("treated"):
            from perfdoctor_agent.treated import Treated

            treated = Treated(torch, settings["treated"])
        agent = cls.class_for(settings)(torch, settings, treated)
        from multiprocessing import util  # torch has imported it

        os.register_at_fork(after_in_child=agent.forked)
        util.register_after_fork(agent, Agent.in_child)
        agent.watch()

    @staticmethod
    def class_for(settings: Any) -> type[Agent]:
        if not settings.get("watch"):
            return Agent
        from perfdoctor_agent.watching import WatchingAgent

        return WatchingAgent

    def __init__(self, torch: Any, settings: Any, treated: Treated | None = None) -> None:
        self.torch, self.settings = torch, settings
        self.treated = treated  # while a treatment is tried
        self._is_compiling, self._is_tracing = torch.compiler.is_compiling, torch.jit.is_tracing
        self.is_fork = False
        self.has_optimizer = False
        self.optimizers = 0
        self.numbers = Numbers()
        self.marks_steps = False  # the program itself says where they end
        self._renew()

    def _renew(self) -> None:
        self.pid = os.getpid()
        self.report = self._new_report()
        self.step_finder = self._new_step_finder()
        self.foreign = Foreign(self.torch, self._make_room, self._own_trace)
        self.recorder: Recorder | None = None
        self.ranges: RangeHooks | None = None
        self.window = -1  # number of the recorded step; 0 in warm-up, -1 before
        self.window_end = WindowEnd(self.settings)
        self._thread = 0  # which has begun the recorder, and alone can end it
        self._forwards = 0  # outermost ones, since the open step was asked about
        self.ends_ns: list[int] = []  # of recorded steps; first of all, the begin of the first one
        self.memory = MemorySamples()  # at the end of each recorded step
        self.processor = ProcessorUse()  # from the first recorded step to the last
        self.loaders = LoaderWatch(self.torch)  # which feed the recorded steps
        self.sampling = Sampling(self.settings.get("sampling"))  # of stacks, from outside
        self.before: dict[Any, StepEnds] = {}  # ends of what may be a step, by its kind, in front of the window
        self.behind: StepEnds | None = None  # ends of steps behind the window, while they are timed
        self.is_done = False
        # Of a program that is ended with its window there is no whole run.
        self.whole_run = None if self.settings["stop"] else self._new_whole_run()
        self._lock = threading.RLock()
        self.modules = ModuleMarks(self.torch)
        self.short_forwards = ShortForwards()
        self.forward = ForwardWatch(self.torch, self._forward, self.modules)
        self.backward = BackwardWatch(self.torch, self._backward_ended)
        self.step_range = StepRangeWatch(self.torch, self._range_ended)
        self.updates_by_hand = False  # there was a backward pass, and no optimizer
        self._hooks: list[Callable[[], None]] = []
        self._caught: list[int] = []  # signals whose handler is ours
        self._step_hooks: dict[str, Callable[[], None]] = {}  # what sees the ends of steps

    def _new_report(self) -> AgentReport:
        given = self.settings
        return AgentReport(given["reports"], given["pass"], str(self.torch.__version__), given.get("report", ""))

    def _new_whole_run(self) -> WholeRun | None:
        facts = {"samples": bool(self.settings["steps"]), "events": self.treated is not None}
        return WholeRun(self.torch, *self.report.whole_run_file, **facts)

    def _new_step_finder(self) -> StepFinder:
        # torch.profiler warms up during one step, the last skipped one.
        finder = StepFinder(self.settings["skip"] - bool(self.settings["activities"]), rounds=not self.has_optimizer)
        finder.expected = 1 if self.marks_steps else max(self.optimizers, 1)
        return finder

    # --- before the window ---

    @guarded
    def watch(self) -> None:
        optimizer = sys.modules["torch.optim.optimizer"]  # torch.optim hides it
        if not self.is_fork:
            # A fork may be a loader's worker: it reports nothing before it trains.
            self._name_nccl_log()
            self.report.write()
            self.sampling.follow(identity.parent())
        self.sampling.announce()
        for loss in private.losses(self.torch):
            self.report.note(loss)
        self._step_hooks = {
            "optimizer": optimizer.register_optimizer_step_post_hook(self._optimizer_hook()).remove,
            "forward": self.forward.remove,
            "backward": self.backward.remove,
            "range": self.step_range.remove,
        }
        self.step_range.install()
        self._hooks.append(self._watch_new_optimizers(optimizer.Optimizer))
        if not self.has_optimizer:
            self.forward.install()
            self.backward.install()
        self.foreign.watch()
        self._hooks.append(self.foreign.leave)
        self.at_exit()

    def _watch_new_optimizers(self, optimizer: Any) -> Callable[[], None]:
        """A new optimizer means that its updates are the steps: forwards and backwards need not be watched."""
        original = optimizer.__init__

        @functools.wraps(original)
        def made(optimizer_self: Any, *args: Any, **kwargs: Any) -> Any:
            self._trains()
            return original(optimizer_self, *args, **kwargs)

        return private.replace(optimizer, "__init__", made)

    @guarded
    def _trains(self) -> None:
        self.optimizers += 1
        if self.marks_steps:
            return
        if self.has_optimizer:
            self.step_finder.expected = self.optimizers
            return
        self.has_optimizer = True
        self._begin_anew()
        self.forward.remove()
        self.backward.remove()

    def _begin_anew(self) -> None:
        """Drop what was counted so far, and what was recorded of it: these were no steps of the training."""
        if self.step_finder.chosen is not None and not self.is_done:
            self._drop_recording()
        self.step_finder = self._new_step_finder()
        self.before = {}
        if self.whole_run is not None:
            self.whole_run.begin_anew()

    def _drop_recording(self) -> None:
        self._discard()
        self._recorded()
        self.recorder, self.ranges, self.window = None, None, -1
        self.foreign.is_alone = False
        self.memory = MemorySamples()
        self.sampling.announce()

    def in_child(self) -> None:
        """Register the end again in a child of multiprocessing, which has lost what its parent had registered."""
        self.at_exit()
        if identity.is_worker():
            self.sampling.follow(identity.parent())

    def at_exit(self) -> None:
        """Finish at the end of the interpreter, and in children of multiprocessing, which skip atexit."""
        from multiprocessing import util  # torch has imported it

        util.Finalize(None, self.finish, exitpriority=1000)

    def _name_nccl_log(self) -> None:
        """Let NCCL write its rings and transports into a file per rank; it reads these variables when it starts."""
        rank, world_size = identity.launcher_rank()
        folder = self.settings.get("nccl")
        if folder and world_size > 1 and not any(name.startswith("NCCL_DEBUG") for name in os.environ):
            os.environ["NCCL_DEBUG"] = "INFO"
            os.environ["NCCL_DEBUG_SUBSYS"] = "INIT,GRAPH,ENV,TUNING"
            os.environ["NCCL_DEBUG_FILE"] = os.path.join(folder, f"rank{rank}.log")

    # --- steps ---

    def _optimizer_hook(self) -> Callable[[Any, Any, Any], None]:
        """What torch is to call behind each update."""
        return self._optimizer_stepped

    def _optimizer_stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._is_compiling():  # do not appear in what a compiler traces
            return
        if self._is_left:
            self._noted(self.numbers.of(optimizer))
            return
        if not self.has_optimizer:  # it was made before the agent began to watch
            self._trains()
        if self.whole_run is not None:
            self.whole_run.know(optimizer)
        self._event(self.numbers.of(optimizer), "optimizer")

    def _forward(self, call: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
        if self.window > 0 and not self.is_done:
            self._forwards += 1
            if self._forwards >= _FORWARDS and threading.get_ident() == self._thread:
                self._check_open_step()
        # A range would become part of what torch.jit.trace traces.
        if self.window == 0:
            result = self.short_forwards.timed(call, module, *args, **kwargs)
        elif (
            self.window < 0
            or self.ranges is None
            or self.is_done
            or self._is_tracing()
            or module in self.short_forwards
        ):
            result = call(module, *args, **kwargs)
        else:
            result = self.ranges.around("forward", call, module, *args, **kwargs)
        if not self.has_optimizer:
            self._event(_identity(module), "forward")
        return result

    @guarded
    def _backward_ended(self) -> None:
        is_first, self.updates_by_hand = not self.updates_by_hand, True
        seen = self.step_finder.order
        if is_first and len(set(seen)) < len(seen):  # what came more than once before it was a validation
            self._begin_anew()
        else:
            self._event(_BACKWARD, "backward")

    @guarded
    def _range_ended(self) -> None:
        if not self.marks_steps and not self.is_done:
            self.marks_steps = True
            self._begin_anew()
        self._event(STEP_RANGE, "range")

    @guarded
    def _event(self, kind: Any, found_by: str) -> None:
        """Count an event that may end a step. `found_by`: what kind of event it is, for the report."""
        if self._is_left:
            self._noted(kind)
            return
        is_loader_worker = self.torch.utils.data.get_worker_info() is not None
        if is_loader_worker or (self.marks_steps and found_by != "range"):
            return
        now_ns = time.monotonic_ns()
        with self._lock:
            if self.whole_run is not None and found_by != "forward" and self.step_finder.chosen in (None, kind):
                self.whole_run.step_ended(kind, now_ns)
            if self.is_done:
                self._passed_behind(kind, now_ns)
                return
            if self.step_finder.chosen is None:
                for gone in self.numbers.gone():  # of a search for a learning rate, as a rule: none of the training
                    self.optimizers -= 1
                    self.step_finder.forget(gone)
                self.before.setdefault(kind, StepEnds(self.torch)).add(now_ns)
            if self.step_finder.chosen is None and not self.step_finder.count:
                self._rank()  # this process is now known to train: report who it is
                self.report.write(step_found_by=found_by, **identity.facts(self.settings["masking"]))
            if self.step_finder.add(kind, now_ns):
                self.report.facts["step_found_by"] = found_by
                if self.window < 0 and self.step_finder.is_doubtful:
                    self.report.note(_DOUBT)
                self._step_ended(now_ns)
            elif self.step_finder.chosen is None:
                self.report.facts["steps_seen"] = self.step_finder.count

    @property
    def _is_left(self) -> bool:
        """Is nothing done any more but to note when steps end?"""
        return self.is_done and self.behind is None

    @guarded
    def _noted(self, kind: Any) -> None:
        if self.whole_run is not None and kind == self.step_finder.chosen and os.getpid() == self.pid:
            self.whole_run.step_ended(kind, time.monotonic_ns())

    def _step_ended(self, now_ns: int) -> None:
        if self.window > 0:
            self.ends_ns.append(now_ns)
            self.memory.sample(self.torch)
        self.report.facts["steps_seen"] = max(self.report.facts["steps_seen"] + 1, self.step_finder.count)
        if self.window < 0:
            self._open()
        elif not self.window or not self._is_last(now_ns):
            self._next()
        else:
            self._close()

    def _is_last(self, now_ns: int) -> bool:
        """Is the window over with the step that has just ended?"""
        job = self.report.facts.get("job", "") if (self.report.facts["world_size"] or 1) > 1 else ""
        return self.window_end.is_reached(self.window, now_ns - self.ends_ns[0], job, self.memory.heap_growth())

    @guarded
    def _check_open_step(self) -> None:
        """End the window where its step does not end: an evaluation would be recorded until it is over."""
        self._forwards = 0
        if self.recorder is None or os.getpid() != self.pid or self._is_tracing() or self._is_capturing():
            return
        with self._lock:
            open_ns = time.monotonic_ns() - self.ends_ns[-1]
            if self._is_overdue(open_ns):
                self._end_open_step(open_ns)

    def _is_overdue(self, open_ns: int) -> bool:
        times = [now_ns for now_ns, _ in self._in_front().ends] + self.ends_ns
        gaps = sorted(b - a for a, b in zip(times, times[1:]))
        return self.window_end.is_overdue(open_ns, gaps[len(gaps) // 2] if gaps else 0)

    def _end_open_step(self, open_ns: int) -> None:
        """Keep the whole steps; without any, drop the recording, and begin anew with the next step."""
        ended = f"no step ended for {open_ns / 1e9:.0f} s: "
        if self.window > 1 and self.window_end.is_written_soon:
            self.report.note(ended + "the recording ends with the step before")
            self._end_window()
            self._stop_program()
        else:
            self.report.note(ended + "what was recorded until then was dropped, and the recording began anew")
            self._drop_recording()
            self._window_over()
            self.report.write(state="watching", steps_recorded=0)

    def _is_capturing(self) -> bool:
        """Is a CUDA graph captured? Nothing may wait for the GPU meanwhile."""
        cuda = self.torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    # --- the window ---

    def _open(self) -> None:
        """Begin one step of warm-up where torch.profiler is to record; else begin the window at once."""
        if self.whole_run is not None:
            self.whole_run.choose(self.step_finder.chosen)
        if not self.settings["steps"]:  # only their ends are timed, for as long as the program runs
            self._catch_ending()
            if self.treated is not None and self.treated.is_last(self.report.facts["steps_seen"]):
                self.finish()
                self.report.write(stopped=True)
                raise SystemExit(0)
            if self.treated is not None and self.whole_run is not None:
                self.treated.turns.step_ended(self.whole_run.steps)
            return
        if self.settings["activities"] and self.foreign.is_active:
            self.report.note(_NOT_STARTED)
            if self.settings["pass"] == "torch":
                return  # it may end, and the window begin then
        if self.whole_run is not None:
            self.whole_run.window_begins()
        self.sampling.begin(self._in_front().last_ns, identity.processes_here())
        if self.settings["activities"] and not self.foreign.is_active:
            self._make_recorder()
        self.window = 0
        if self.recorder is None:
            self._next()

    def _make_recorder(self) -> None:
        rank = self._rank()
        self.report.withdraw(_NOT_STARTED)
        cuda = "cuda" in self.settings["activities"] and self.torch.cuda.is_available()
        stacks, target = self.settings["stacks"], self._target(f"rank{rank}")
        self.recorder = Recorder(self.torch, self.foreign, cuda=cuda, stacks=stacks, target=target)
        self.recorder.before_export = self._recorded
        self.foreign.is_alone = True
        self._thread = threading.get_ident()
        self.recorder.warm_up()
        if self.settings.get("modules") and self.modules.switch_on():
            self.forward.install()  # also in the step of warm-up, in which the modules get their names

    def _target(self, stem: str) -> str:
        """A new file for the trace: two processes may have the same rank."""
        for name in (stem, f"{stem}-{self.pid}"):
            path = os.path.join(self.settings["traces"], name + ".pt.trace.json")
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                return path
        raise OSError("two traces of one process")

    def _next(self) -> None:
        """Begin a recorded step; before the first one, switch everything on."""
        if self.window == 0:
            self._switch_on()
            self.processor.begin()
            self.sampling.steps_begin()
            self.window_end.begin()
            self.ends_ns = [time.monotonic_ns()]
        self.window += 1
        self._forwards = 0
        if self.recorder is not None:
            self.recorder.step()
        elif self.ranges is not None:
            self.ranges.step_begins(self.window)
        self.report.facts["steps_recorded"] = self.window - 1

    def _switch_on(self) -> None:
        self._rank()
        self._profile_kernels(on=True)
        tool = nvtx.attach() if self.settings["nvtx"] and not self.is_fork else None
        if self.settings["nvtx"] and tool is None:
            self.report.note("Nsight Systems does not record NVTX ranges of this process")
        self.ranges = RangeHooks(self.torch, tool, to_torch=self.recorder is not None)
        self.ranges.install()
        self.forward.install()
        self.loaders.install()
        self._hooks.append(self.loaders.remove)
        self._catch_ending()
        self.report.write(state="recording")

    def _close(self) -> None:
        """End the last recorded step: write the trace, remove all hooks."""
        self.processor.end(self.torch)
        self.report.facts["steps_recorded"] = self.window
        if not self.marks_steps and self.step_finder.comes_in_bursts(self.ends_ns):
            self.report.note(_DOUBT)
        held_ns = time.monotonic_ns()
        if self.recorder is not None:
            self.recorder.stop()  # it writes the trace
        self._recorded()
        self._off(but=self.report.facts["step_found_by"])
        self._write_result()
        self._try_loader()
        self.report.write(held_ns=time.monotonic_ns() - held_ns)
        self._stop_program()
        self._window_over()
        self.behind = StepEnds(self.torch)
        self.behind.add(time.monotonic_ns())

    def _stop_program(self) -> None:
        """End it with its window, if it is to."""
        if self.settings["stop"]:
            self.report.write(stopped=True)
            raise SystemExit(0)  # as if the training had ended here, so that files are flushed and children end

    @property
    def _of_steps(self) -> str:
        """The hook that sees the ends of steps, which stays while they are noted."""
        return "" if self.whole_run is None else self.report.facts["step_found_by"].replace("forward", "")

    def _window_over(self) -> None:
        if self.whole_run is not None:
            self.whole_run.window_ends()

    # --- behind the window ---

    def _passed_behind(self, kind: Any, now_ns: int) -> None:
        """Time a step of this `kind` that ended at `now_ns`: it shows what steps take without a profiler."""
        if self.behind is not None and kind == self.step_finder.chosen:
            self.behind.add(now_ns)
            if self.behind.is_enough:
                self._write_unrecorded()

    def _write_unrecorded(self) -> None:
        """Report the length of unrecorded steps, and leave the program alone."""
        if self.behind is not None:
            self.report.write(**unrecorded(self._in_front(), self.behind))
        self._leave(but=self._of_steps)

    def _in_front(self) -> StepEnds:
        return self.before.get(self.step_finder.chosen) or StepEnds(self.torch)

    def _recorded(self) -> None:
        """Stop every tool: what follows is not recorded."""
        self.modules.switch_off()
        self.sampling.end()
        if self.ranges is not None:
            self.ranges.steps_end()
            self.ranges.remove()
        self.loaders.remove()
        self._profile_kernels(on=False)

    def _write_result(self) -> None:
        recorder, ranges = self.recorder, self.ranges.count if self.ranges is not None else 0
        if recorder is not None and recorder.error:
            self.report.write(state="failed", nvtx_ranges=ranges)
            self.report.note("the trace could not be written: " + recorder.error)
        self.report.write(
            state="failed" if recorder is not None and not recorder.trace else "written",
            trace=recorder.trace if recorder is not None else "",
            nvtx_ranges=ranges, watched_step_ns=_median_gap(self.ends_ns), memory=self.memory.as_json(),
            processor=self.processor.facts, loaders=self.loaders.facts, **unrecorded(self._in_front()),
        )  # fmt: skip

    def _try_loader(self) -> None:
        """Try once what workers would do for the loader of the recorded steps, while the program waits."""
        source, ends_ns = self.loaders.take_source(), self.ends_ns
        limit_s = self.settings.get("trial_s")
        if limit_s and not self.report.facts["loader_trial"] and not self.is_fork and ends_ns:
            waited = self.loaders.waited_ns / max(ends_ns[-1] - ends_ns[0], 1)
            self.report.write(loader_trial=trial.of_loader(self.torch, source, waited, limit_s))

    def _profile_kernels(self, *, on: bool) -> None:
        """Open or close the range in which nsys or ncu records, if they wait for it."""
        wanted = self.settings["capture_range"]
        if not wanted or (wanted == "first" and self._rank() != 0) or not self.torch.cuda.is_initialized():
            return
        runtime = self.torch.cuda.cudart()
        (runtime.cudaProfilerStart if on else runtime.cudaProfilerStop)()

    # --- early ends ---

    @guarded
    def _make_room(self) -> None:
        """End our profiler: the program starts its own."""
        if self.recorder is None or self.is_done or os.getpid() != self.pid:
            return
        self.report.note("the program started its own torch.profiler: perfdoctor's was stopped")
        self._end_window()
        if not self.report.facts["trace"]:
            self.foreign.watch_exports()

    @guarded
    def _own_trace(self, path: str) -> None:
        """The program has written a trace itself."""
        if os.getpid() == self.pid and path not in self.report.facts["own_traces"]:
            self.report.facts["own_traces"].append(path)
            self.report.write()

    @guarded
    def finish(self, *, is_killed: bool = False) -> None:
        """Keep, at the end of the process, what was recorded in a window that is still open."""
        if os.getpid() != self.pid:
            return
        with self._lock:
            if not self.is_done:
                self._end_window()
                if not is_killed and getattr(sys, "last_value", None) is None:  # it did not end by an error
                    self._try_loader()
            self._write_unrecorded()
            if self.whole_run is not None:
                self.whole_run.end()
                self.report.facts["timed"] = self.whole_run.timed(waits=not is_killed)
            self._off()
            if self.report.facts["steps_seen"] or not self.is_fork:
                if self.treated is not None:
                    self.report.facts["treated"] = self.treated.facts()
                self.report.write(ended=True)

    def _end_window(self, *, keep: bool = True) -> None:
        self.processor.end(self.torch)
        recorded = self.window - 1
        if keep and recorded >= 1 and self.recorder is not None:
            self.recorder.stop()
        elif self.recorder is not None:
            self._discard()
        self._recorded()
        self._off(but=self._of_steps)
        if self.window > 0:
            self._write_result()
        self._window_over()

    def _discard(self) -> None:
        """Drop a recording without a whole step (no trace is better than that), or one that nobody waits for."""
        if self.recorder is None:
            return
        self.recorder.discard()
        with contextlib.suppress(OSError):
            os.unlink(self.recorder.target)

    def _catch_ending(self) -> None:
        """Write the trace on a signal that else would lose it. A program's own handler is left in place."""
        has_more = self.recorder is not None or not self.settings["steps"]
        if not _is_main_thread() or not has_more:
            return
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._ended_by)
                self._caught.append(number)
        self.report.facts["ends_late"] = signal.SIGTERM in self._caught  # else what takes long is the program's own

    def _ended_by(self, number: int, _frame: Any) -> None:
        self._release_signals()
        self.finish(is_killed=True)
        os.kill(os.getpid(), number)

    def _release_signals(self) -> None:
        if _is_main_thread():
            while self._caught:
                number = self._caught.pop()
                if signal.getsignal(number) == self._ended_by:
                    signal.signal(number, signal.SIG_DFL)

    def give_up(self, why: str) -> None:
        """End the agent after an error, whatever else fails meanwhile."""
        with contextlib.suppress(Exception):
            self.report.note(FAILED + why)
            self.report.write(state="failed")
            self.sampling.leave()
            self.modules.switch_off()
            if self.ranges is not None:
                self.ranges.remove()
            self._leave()
        self.is_done = True
        with contextlib.suppress(Exception):
            if self.whole_run is not None:
                self.whole_run.end()
        with contextlib.suppress(Exception):
            if self.recorder is not None and not self.recorder.trace:
                self._discard()  # else it would go on, and fill the memory

    def _off(self, but: str = "") -> None:
        """Remove all hooks, but the one that sees the ends of steps, if it is named."""
        self.is_done = True
        while self._hooks:
            self._hooks.pop()()
        self.foreign.is_alone = False
        for name in [each for each in self._step_hooks if each != but]:
            self._step_hooks.pop(name)()
        self._release_signals()

    def _leave(self, but: str = "") -> None:
        self.behind = None
        self.loaders.take_source()
        self._off(but)

    def forked(self) -> None:
        """Drop the parent's window in a child made by fork, and watch for training anew."""
        if self.whole_run is not None:
            self.whole_run.drop()
        if self.is_done:
            self._leave()
            return
        try:
            self._drop_window()
            self.is_fork = True
            self._renew()
            self.watch()
        except Exception as error:
            self.report = self._new_report()  # not the parent's
            self.give_up(f"{type(error).__name__}: {error}")

    def _drop_window(self) -> None:
        """Drop the window in a child: the recording is the parent's."""
        self.sampling.drop()
        if self.ranges is not None:
            self.ranges.nvtx = None
            self.ranges.remove()
        self.modules.switch_off()
        self._off()

    def _rank(self) -> int:
        rank, world_size = identity.rank(self.torch)
        self.report.facts.update(rank=rank, world_size=world_size)
        return rank


def _is_main_thread() -> bool:
    """Not by `current_thread`, which makes a thread known to `threading` that it has not started."""
    return threading.get_ident() == threading.main_thread().ident


def _identity(module: Any) -> Any:
    """The id of a model; the class of a module without parameters, as losses are often made anew for each step."""
    with contextlib.suppress(Exception):  # a class of the program's own may be unlike others
        if next(module.parameters(), None) is not None:
            return id(module)
    return type(module).__qualname__


def _median_gap(times_ns: list[int]) -> int:
    """The median gap; 0 where there are fewer than two, as one proves nothing."""
    gaps = sorted(b - a for a, b in zip(times_ns, times_ns[1:]))
    return gaps[len(gaps) // 2] if len(gaps) > 1 else 0
