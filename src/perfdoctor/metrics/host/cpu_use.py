"""Had the training the cores that it could use: how many, how idle, who else ran on them, who waited for one?

Two sources. Samples of the machine (`cpu_samples`, ten a second): means over time, of all processes together. And what
each training process counted itself from its first recorded step to its last (`cpu_processes`): exact, also where all
steps take less than a sample. Both are recorded by `perfdoctor run` on Linux; NaN stands for what is not known.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.metrics.grouping import of_known, weighted_mean
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Frame

_SECOND_NS = 1_000_000_000
#: A sample stands for a stretch of time if at least half of it lies inside.
_MOSTLY = 0.5
#: Of the step. Contention that took less from the training is within noise: two runs on a free machine differ by a few
#: per cent.
MOST_WAITING = 0.1
#: /proc/stat counts a core's time in such ticks: of one core less is not known between two samples.
_TICK_NS = 10_000_000


def cores_allowed(run: Run) -> float:
    """How many cores each training process may use: by its affinity and its control group's quota; NaN if unknown.

    The least of all processes, where they differ: 2.5 is a quota of two and a half.
    """
    known = np.concatenate([_processes(run).floats("allowed_cores"), _samples(run).floats("allowed_cores")])
    return of_known(np.nanmin, known)


def idle_cores(run: Run) -> float:
    """How many of the allowed cores nobody used, a mean over the analysed steps; NaN if unknown.

    Not more than what a quota leaves to the program.
    """
    samples = _samples(run)
    left = samples.floats("allowed_cores") - samples.floats("program_cores")
    return weighted_mean(np.fmin(samples.floats("idle_cores"), np.maximum(left, 0)), samples.duration_ns)


def other_cores(run: Run) -> float:
    """How many of the allowed cores processes used that are neither the recorded program's nor perfdoctor's, a mean
    over the analysed steps; NaN if unknown. Time in which another virtual machine ran is `steal_cores`.
    """
    samples = _samples(run)
    own = samples.floats("program_cores") + samples.floats("recorder_cores")
    # A core's time is counted in ticks: in single samples the program may seem to have used more than was used.
    return float(np.maximum(weighted_mean(samples.floats("busy_cores") - own, samples.duration_ns), 0))


def cores_of_others(run: Run) -> float:
    """The cores that other programs used, and that other virtual machines took as far as that is known."""
    return other_cores(run) + float(np.nan_to_num(steal_cores(run)))


def others_use_the_rest(run: Run) -> bool:
    """Would a core be idle if no other program used any? Then it is not the training that leaves none."""
    return idle_cores(run) < 1 <= idle_cores(run) + cores_of_others(run)


def program_cores(run: Run) -> float:
    """How many cores the recorded program used with all its processes, a mean over the analysed steps."""
    return _of_samples(run, "program_cores")


def steal_cores(run: Run) -> float:
    """How many of the allowed cores the machine below took for other virtual machines, a mean."""
    return _of_samples(run, "steal_cores")


def throttled_share(run: Run) -> float:
    """The share of the time in which a control group's quota held the program back (0-1)."""
    return _of_samples(run, "throttled_share")


def waiting_threads(run: Run) -> float:
    """How many threads of the program were ready to run and had no core, a mean over time (the kernel's run_delay)."""
    return _of_samples(run, "waiting_threads")


def threads_per_process(run: Run) -> float:
    """How many threads a training process had after its recorded steps, the mean of all; NaN if unknown."""
    return of_known(np.nanmean, _processes(run).floats("threads"))


def torch_threads(run: Run) -> float:
    """The threads with which torch computes one op (`torch.get_num_threads()`), the most of all processes; or NaN."""
    return of_known(np.nanmax, _processes(run).floats("torch_threads"))


def training_processes(run: Run) -> int:
    """How many processes trained at the same time: the ranks that counted themselves, and the command's other trainings
    that ran beside them.
    """
    processes = run.timeline.processes
    beside = (each for one in processes if one.diagnosed for each in processes if each != one and each.ran_beside(one))
    return len(_processes(run)) + sum(each.ranks for each in beside)


def involuntary_switches_per_second(run: Run) -> float:
    """How often the threads of a training process were taken off a core although they had work; mean of all ranks."""
    return _rate(run, "involuntary_switches")


def waiting_share(run: Run) -> float:
    """The share of the recorded steps in which the thread that trains was ready to run and had no core, the largest of
    all ranks (0-1); NaN if unknown. By this the steps are longer than on a free machine.
    """
    processes = _processes(run)
    return of_known(np.nanmax, processes.floats("thread_delay_ns") / np.maximum(processes.duration_ns, 1))


def without_core_ns(run: Run) -> dict[int, float]:
    """By rank: how long the thread that trains was ready to run and had no core, in ns a step; {} where unknown."""
    processes = _processes(run)
    shares = processes.floats("thread_delay_ns") / np.maximum(processes.duration_ns, 1)
    known = ~np.isnan(shares)
    return dict(zip(processes["rank"][known].tolist(), (shares[known] * run.step_ns).tolist(), strict=True))


def sleeping_share(run: Run) -> float:
    """The share of the recorded steps in which the thread that trains neither ran nor waited for a core: it slept, or
    waited for a file, a lock, another process or a device; mean of all ranks (0-1), NaN if unknown.
    """
    used = _processes(run)
    known = used.floats("thread_cpu_ns") + used.floats("thread_delay_ns")
    shares = np.clip(1 - known / np.maximum(used.duration_ns, 1), 0, 1)
    return of_known(np.nanmean, shares)


def cores_used(run: Run) -> float:
    """How many cores a training process used by its own count over its recorded steps, the mean of all ranks."""
    return _rate(run, "cpu_ns") / _SECOND_NS


class Crowding(Struct, frozen=True):
    """More threads wanted a core than there are cores. Cores and threads are means over the analysed steps.

    `waiting_share`: of the recorded steps the thread that trains was ready to run and had no core, whoever had it.
    `own_demand`: cores that the program used, and its threads that waited for one; `recorder`: cores that perfdoctor
    used; `others`: cores that other programs used, and those that other virtual machines took. `by_others`: the part of
    the missing cores that is theirs (0-1). Shares of the step that are lost to them: `lost_share`, in which the thread
    that trains had no core because of them; `most_lost_share`, more than which they cannot explain.
    """

    cores: float
    waiting_share: float
    own_demand: float
    recorder: float
    others: float
    lost_share: float = 0.0
    most_lost_share: float = 0.0

    @property
    def by_others(self) -> float:
        """What others use is missing; what the program and its recorder want beyond all cores is missing as well."""
        own_excess = max(self.own_demand + self.recorder - self.cores, 0.0)
        return self.others / (self.others + own_excess) if self.others > 0 else 0.0


@once_per_run
def crowding(run: Run) -> Crowding | None:
    """Who took the cores that the thread that trains waited for; None where that was not recorded.

    A thread also waits where cores are idle: from when it is woken until an idle core has it, and behind threads of its
    own program on the same core. Time is lost to others only while three things are so at once: others run, a thread of
    the program waits, and no core is idle. None of the three lasts longer than its mean allows. With `i` of `n` cores
    idle, on the mean, none was idle for at least 1 − i of the time, which counts as likely, and for at most 1 − i ÷ n.
    """
    demand = program_cores(run) + waiting_threads(run)
    recorder = _of_samples(run, "recorder_cores")
    found = Crowding(cores_allowed(run), waiting_share(run), demand, recorder, cores_of_others(run))
    if np.isnan([found.cores, found.waiting_share, found.own_demand, found.recorder, found.others]).any():
        return None
    idle = float(np.nan_to_num(_of_samples(run, "idle_cores")))
    in_all = max(float(np.nansum([idle, _of_samples(run, "busy_cores"), steal_cores(run)])), 1.0)
    surely_others = max(found.others - in_all * _TICK_NS / _samples(run).duration_ns.sum(), 0.0)
    most = min(surely_others, waiting_threads(run), 1 - idle / in_all, 1.0)
    # In which its own quota held the program back it waited for nobody.
    waited = max(found.waiting_share - float(np.nan_to_num(throttled_share(run))), 0.0)
    lost = min(waited * found.by_others, most, max(1 - idle, 0.0))
    return replace(found, lost_share=lost, most_lost_share=most)


def contended_share(run: Run) -> float:
    """The share of the steps in which the training had no core because of others (0-1); 0 where that is unknown, or
    noise.
    """
    found = crowding(run)
    return found.lost_share if found is not None and found.lost_share >= MOST_WAITING else 0.0


def most_contended_share(run: Run) -> float:
    """The most of the steps that others' use of the cores can explain (0-1); 0 where that is unknown, or noise."""
    found = crowding(run)
    return found.most_lost_share if found is not None and found.most_lost_share >= MOST_WAITING else 0.0


# --- samples and processes ---


@once_per_run
def _samples(run: Run) -> Frame:
    """The samples that lie mostly in the analysed steps; where none does, as steps may be shorter, those that meet
    them.
    """
    samples, window = run.timeline["cpu_samples"], Intervals.union(place.window for place in run.places)
    samples = samples.take(samples["is_on_clock"])
    inside = window.overlap_ns(samples.start_ns, samples.end_ns) / np.maximum(samples.duration_ns, 1)
    return samples.take(inside >= _MOSTLY if (inside >= _MOSTLY).any() else inside > 0)


def _of_samples(run: Run, column: str) -> float:
    samples = _samples(run)
    return weighted_mean(samples.floats(column), samples.duration_ns)


def _processes(run: Run) -> Frame:
    """What each training process of the job counted itself, one row each."""
    return run.job.timeline["cpu_processes"]


def _rate(run: Run, column: str) -> float:
    """A column of the processes per second of their recorded steps, the mean of all; NaN if unknown."""
    processes = _processes(run)
    return of_known(np.nanmean, processes.floats(column) / np.maximum(processes.duration_ns, 1) * _SECOND_NS)
