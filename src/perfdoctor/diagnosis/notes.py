"""What must a reader know beside the findings: which part was analysed, what was missing, what limits the savings?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import PurePath

from perfdoctor.diagnosis.kernel_notes import of_single_kernels
from perfdoctor.diagnosis.records import Found
from perfdoctor.hardware.measured import MeasuredRate, compared
from perfdoctor.metrics.accounting.host_place import launches_gpu_work, only_ranges
from perfdoctor.metrics.accounting.lost_launches import lost_note
from perfdoctor.metrics.accounting.prepare import selection_notes
from perfdoctor.metrics.accounting.real_time import FRAME_NS, MOST_SHARE, real_time, stack_cost
from perfdoctor.metrics.counters.links import busiest_kernel, unexplained_share
from perfdoctor.metrics.counters.means import LEAST_COVERED
from perfdoctor.metrics.counters.samples import recorded_samples
from perfdoctor.metrics.host.feeding import unhidden_share
from perfdoctor.metrics.host.pace import run_spare_ns
from perfdoctor.metrics.kernels.contradictions import contradictions
from perfdoctor.metrics.kernels.whole_graphs import MOSTLY_GRAPHS, whole_graphs_share
from perfdoctor.metrics.program import basis_of, may_be_torch, noun_of, phases
from perfdoctor.metrics.whole_run.partition import run_time
from perfdoctor.metrics.work.device_peaks import measured, peaks
from perfdoctor.model.run import Run
from perfdoctor.model.steps import minor_repetition
from perfdoctor.model.timeline import RecordedProcess
from perfdoctor.records.findings import Outcome
from perfdoctor.vocabulary.names.base_names import base_name
from perfdoctor.vocabulary.parts import PARTS
from perfdoctor.vocabulary.sentences import IN_GRAPHS, NO_KERNEL, milliseconds
from perfdoctor.vocabulary.signals import MACHINE_SIGNALS

_PHASES = {"prefill": "is prefill", "decode": "is decoding", "mixed": "is both, prefill beside decoding"}
#: Enough to recognise one among a sweep; all of them are in the JSON.
_MOST_PROCESSES = 8
_LONGEST_COMMAND = 60
_MAIN = "MainProcess"  # as multiprocessing calls the first process of a Python
#: A part this many times as long as without a recorder is nothing but recording.
_HARDLY_LEFT = 10.0
#: The links that the GPU's counters see, and a share of their peak that copies of a few bytes do not explain: where
#: nobody else used the GPU it was 1 % (an A100).
_LINKS = {"pcie_rx": "its link to the host received", "pcie_tx": "its link to the host sent"}
_UNEXPLAINED = 0.1
#: A host that could launch the same work in less time by more than this share of the step is not "nearly" the limit.
_NEARLY = 0.1
_NAMES = {"host_link": "pinned copies"}


def notes(run: Run, found: Sequence[Found]) -> Iterator[str]:
    """Which part was analysed, what the readers say, and what the numbers and savings rest on."""
    yield from selection_notes(run)
    yield from _of_processes(run.timeline.processes)
    yield from run.timeline.notes
    yield from of_single_kernels(run)
    yield from _of_the_recording(run)
    yield from _of_whole_run(run)
    yield from _of_limits(run, found)
    yield from _of_rates(run)


def of_failed_rules(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Notes on the user's own rules that failed. Reports list built-in rules that failed separately."""
    for outcome in outcomes:
        if outcome.status == "failed" and outcome.origin:
            yield f"The rule {outcome.rule} of {outcome.origin} failed and was left out: {outcome.error}."


def _of_processes(processes: Sequence[RecordedProcess]) -> Iterator[str]:
    """Say which of several trainings this is: they are not ranks, as none waits for another, and are not compared."""
    shown = next((process for process in processes if process.diagnosed), None)
    if shown is None:
        return
    yield (
        f"The command ran {len(processes)} trainings, each for itself. This is process {shown.number}: "
        f"{_process(shown)}."
    )
    others = [process for process in processes if not process.diagnosed]
    more = f"; and {len(others) - _MOST_PROCESSES} more" if len(others) > _MOST_PROCESSES else ""
    listed = "; ".join(f"{each.number}: {_process(each)}" for each in others[:_MOST_PROCESSES])
    yield f"Diagnose another one with --process N. {listed}{more}."


def _of_counters(run: Run) -> Iterator[str]:
    """Say why the GPU's counters tell nothing, tell it of a part, or were moved."""
    for place in run.places:
        found, whose = recorded_samples(place), f"The counters of GPU {place.device}"
        count = len(found.rows)
        if found.doubt == "few":
            yield f"{whose} were sampled {count:,} time{'s' * (count != 1)}: nothing follows from so few."
        elif count and not found.recorded:
            yield f"{whose} have no value in {count:,} samples that can be: nothing follows from them."
        elif found.doubt == "clock":
            yield f"{whose} were sampled without times that fit the recording: only their mean of all samples is known."
        elif found.doubt:
            yield f"{whose} do not follow the kernels of rank {place.rank}: they are of another GPU, and were not used."
        elif count and place.share(place.window.overlap_ns(found.starts, found.ends).sum()) < LEAST_COVERED:
            yield f"{whose} were not sampled in the whole analysed window: no means of it are shown."
        for link, what in _LINKS.items():
            if (share := unexplained_share(place, link)) >= _UNEXPLAINED:
                kernel, rate = busiest_kernel(place, link)
                by = (
                    f"most while `{base_name(kernel)}` ran ({100 * rate:.0f} %): it reaches the host's memory, or "
                    "something does at the same time."
                    if kernel
                    else "kernels that read or write the host's memory, a network card that reaches the GPU's memory "
                    "by itself, or another program."
                )
                yield (
                    f"While no copy and no collective ran on GPU {place.device}, {what} {100 * share:.0f} % of what it "
                    f"can: {by}"
                )
        for each in islice(contradictions(place), 1):
            yield (
                f"In `{base_name(each.kernel)}` Nsight Compute saw {each.what} at {100 * each.by_ncu:.0f} % of the "
                f"peak, the GPU's counters at {100 * each.by_counters:.0f} %: it measures a launch alone, with empty "
                "caches and a clock of its own, or measured others. What the counters saw is the program as it ran."
            )
        if found.shift_ns and not found.doubt:
            yield (
                f"{whose} were {abs(found.shift_ns) / 1_000:,.0f} µs {'behind' if found.shift_ns < 0 else 'ahead of'} "
                "its kernels, by when the GPU became active: their times were corrected."
            )


def _process(process: RecordedProcess) -> str:
    """`pid 4711, train.py --lr 0.1, 10 steps recorded, ran 12.5 s`."""
    words = " ".join([PurePath(process.command[0]).name, *process.command[1:]]) if process.command else ""
    if len(words) > _LONGEST_COMMAND:
        words = words[: _LONGEST_COMMAND - 1] + "…"
    name = process.name if process.name != _MAIN else ""
    ranks = f"{process.ranks} ranks" if process.ranks > 1 else ""
    of_all = f" of {process.steps_seen}" if process.steps_seen > process.steps_recorded == 0 else ""
    steps = f"{process.steps_recorded}{of_all} step{'s' * (process.steps_recorded != 1)} recorded"
    length = f"ran {process.length_ns / 1e9:.3g} s" if process.length_ns else ""
    return ", ".join(part for part in (f"pid {process.pid}", name, words, ranks, steps, length) if part)


def _of_whole_run(run: Run) -> Iterator[str]:
    """Say where the run trained on, and nobody noted its steps: another optimizer's, or more than are kept."""
    time = run_time(run)
    if time is not None and time.between_ns["unnoted"]:
        yield (
            f"Steps behind step {time.steps:,} of the run were not noted: what it does between its steps is known "
            "until there."
        )


def _of_the_recording(run: Run) -> Iterator[str]:
    """Say which parts of the program were recorded, and what that leaves unknown."""
    timeline, ranks = run.timeline, len(run.ranks)
    if timeline.world_size > ranks:
        yield f"{ranks} of {timeline.world_size} ranks were recorded: who waits for whom is only known among these."
    if not run.places:
        if len(timeline["memory_segments"]) or len(timeline["memory_changes"]):
            yield "Only memory was recorded: pass a trace of the same run beside it, and both are analysed."
        elif not timeline.recorded.isdisjoint(MACHINE_SIGNALS):
            yield "Only the machine was recorded: pass a trace of the run beside it, and both are analysed."
        elif len(timeline["copies"]):
            yield (
                f"{NO_KERNEL}: {len(timeline['copies']):,} copies and fills of memory take next to no time, and what "
                "else the GPU did is not known. Record CUDA: nsys profile --trace=cuda,nvtx, or perfdoctor run."
            )
        elif "kernel_profiles" not in timeline.recorded:  # else their limits are said
            yield "No GPU activity was recorded, and no framework ops: nothing in this recording can be accounted for."
        return
    if all(place.device is None for place in run.places):
        if only_ranges(timeline):
            yield (
                "No GPU activity was recorded, and no ops: the host's ranges show how long each part took, not what "
                "the GPU did. Record CUDA as well: nsys profile --trace=cuda,nvtx, or perfdoctor run."
            )
        else:
            yield basis_of(run).prose(
                "No GPU activity was recorded: the training thread's own ops are taken as the work."
            )
        launches = launches_gpu_work(run) and not only_ranges(timeline)
        if launches and not any(source.cut_off for source in timeline.sources):
            yield (
                "The program launched work on a GPU, but no kernel was recorded: another profiler held CUPTI (or "
                "roctracer), the container or driver did not permit it, or only the CPU's activities were requested. "
                "`perfdoctor selftest` says which."
            )
    yield from lost_note(run)
    sought = basis_of(run).sought
    if not run.per_step:
        marks = "torch.profiler's step() or " if may_be_torch(timeline) else ""
        yield (
            f"No {sought} were found: times and savings are for the whole recording. Mark {sought} with "
            f"{marks}an NVTX range per iteration."
        )
        yield from _of_repetition(run)
    yield from _of_phases(run)
    yield from _of_stretch(run)
    yield from _of_stacks(run)
    yield from _of_counters(run)
    yield from _left_out(run)
    yield from _of_graphs(run)


def _of_graphs(run: Run) -> Iterator[str]:
    """Say that CUDA graphs were recorded as a whole, and whether most of the work is in them."""
    kernels = run.timeline.kernels
    if not len(kernels) or not kernels["is_graph"].any():
        return
    share, whole = whole_graphs_share(run), "CUDA graphs were recorded as a whole"
    said = f"{IN_GRAPHS} ({100 * share:.0f} % of the kernels' time)" if share > MOSTLY_GRAPHS else whole
    yield (
        f"{said}: the kernels inside them count as busy, but are not separated; to see them, record with nsys "
        "--cuda-graph-trace=node."
    )


def _of_repetition(run: Run) -> Iterator[str]:
    """Name what repeats in a small part of the recording: it is no step of the whole."""
    for place in run.places:
        found = None if place.device is None else minor_repetition(place.recorded("kernels"), place.work)
        if found is not None:
            bounds, share = found
            took_ns = int(bounds[-1] - bounds[0])
            yield (
                f"A part of it repeats: {bounds.size - 1} times {milliseconds(took_ns / (bounds.size - 1))}, with "
                f"{100 * share:.0f} % of the kernels' time. It is judged with the rest: mark its iterations to see it "
                "alone."
            )
            return


def _of_phases(run: Run) -> Iterator[str]:
    """Say whether prefill (bound by arithmetic) or decoding (by memory bandwidth and launches) counts more."""
    known = phases(run)
    if known:
        said = [
            f"{100 * each.share:.0f} % {_PHASES[each.name]} ({each.iterations} iteration{'s' * (each.iterations != 1)})"
            for each in known
        ]
        yield f"Of the GPU's busy time in the server's iterations {' and '.join(said)}."


def _of_stretch(run: Run) -> Iterator[str]:
    """Say by how much recording made the step longer, which parts, and which numbers are without that."""
    real = real_time(run)
    if real is None or not real.is_notable:
        return
    by, why = "Recording made the step", ""
    if not real.is_explained:
        why = f"Recording itself explains {milliseconds(real.explained_ns)} of that. "
    if real.by_others_ns or not real.is_explained:
        by = "Recorded steps are"
    if real.by_others_ns:
        why += (
            f"Other programs had cores meanwhile, which can explain up to {milliseconds(real.by_others_ns)} of that. "
        )
    yield (
        f"{by} {real.stretch:.1f} times as long: {milliseconds(real.recorded_ns)} instead of "
        f"{milliseconds(real.unrecorded_ns)}. {why}Unrecorded steps of the same run were timed, "
        f"{milliseconds(real.measured_ns)} in the middle. Savings and predicted steps are for the unrecorded step; "
        "everything else is as recorded."
    )
    if real.event_ns:
        yield (
            f"Each of {real.events_per_step:,.0f} recorded ops, calls and ranges a step cost the host about "
            f"{real.event_ns / 1e3:.1f} µs."
        )
    times = {part: f"{by:.1f} times" if by < _HARDLY_LEFT else "almost all of it" for part, by in real.notable_parts}
    if times and real.is_recorders and real.is_explained:
        yield f"Stretched by the recording: {', '.join(f'{PARTS[part].label} {by}' for part, by in times.items())}."


def _of_stacks(run: Run) -> Iterator[str]:
    """Say how much of the host's time recording stacks took."""
    (frames, share), real = stack_cost(run), real_time(run)
    if share >= MOST_SHARE and not (real and real.is_notable):
        yield (
            f"{frames:,} Python frames were recorded: at about {FRAME_NS} ns each, that took {100 * share:.0f} % of "
            "the time analysed. The host is faster without it: compare with a recording without stacks."
        )


def _of_limits(run: Run, found: Sequence[Found]) -> Iterator[str]:
    """Say what keeps savings below what detectors expect."""
    if any("loader" in each.rule.hidden_by for each in found) and unhidden_share(run) < 1:
        yield (
            "The loader is the limit: until input-wait is fixed, faster work on the GPU mostly waits longer. "
            "The other savings are predicted accordingly."
        )
    spare_ns = run_spare_ns(run)
    of_host = [each.saving.expected.likely for each in found if "host" in each.rule.hidden_by]
    if spare_ns is not None and any(likely_ns >= spare_ns for likely_ns in of_host):
        spare_share = spare_ns / max(run.step_ns, 1)
        share = f"{100 * spare_share:.0f}"
        room = f"in {share} % less time, no more" if share != "0" else "in no less time"
        limit = "is the limit" if share == "0" else "is nearly the limit"
        limit = "limits what faster kernels save" if spare_share > _NEARLY else limit
        yield (
            f"The host {limit}: it could launch the same work {room}. "
            "Savings on the GPU beyond that come true when the host has less to do."
        )


def _of_rates(run: Run) -> Iterator[str]:
    """Say which measured rates the predicted savings rest on, once for each kind of GPU."""
    places = {rates.machine.device: (rates, place) for place in run.places if (rates := measured(place)) is not None}
    for rates, place in places.values():
        given = place.timeline.user_values.peaks
        rows = [row for row in compared(rates, peaks(place)) if row.name not in given]
        if rows:
            yield (
                f"Rates measured on the recorded machine on {rates.measured_on} are used for predicted savings: "
                f"{', '.join(_rate(row) for row in rows)}. MFU and rooflines are shares of the data sheet's."
            )


def _rate(row: MeasuredRate) -> str:
    """`bf16 712 TFLOP/s (data sheet 989)`."""
    scale, unit = (1e9, "GB/s") if row.name in ("memory", "host_link") else (1e12, "TFLOP/s")
    reached, sheet = (f"{rate / scale:.{0 if rate >= 100 * scale else 1}f}" for rate in (row.measured, row.data_sheet))
    return f"{_NAMES.get(row.name, row.name)} {reached} {unit}" + (f" (data sheet {sheet})" if row.data_sheet else "")


def _left_out(run: Run) -> Iterator[str]:
    """Say which steps were left out."""
    steps = [place.steps for place in run.places if place.steps.used]
    if not steps:
        return
    noun = noun_of(run.places[0])
    warm_up = 0 if run.selection.range_name else max(each.warm_up for each in steps)
    partial = max(each.partial for each in steps)
    if warm_up:
        yield f"{warm_up} leading {noun}{'s' * (warm_up > 1)} left out: much longer than the later ones (warm-up)."
    if partial:
        yield f"{partial} {noun}{'s' * (partial > 1)} at the edge of the recording left out: only partly recorded."
