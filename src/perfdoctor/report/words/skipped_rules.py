"""Which rules could not look, what did they lack, and what is there to record for them?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from perfdoctor.report.words.foreign_text import clean
from perfdoctor.report.words.wording import counted, tells_of_the_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfdoctor.records.diagnosis import Diagnosis

#: What a rule may need, where the signal's own name is not the word for it.
NEEDS = {
    "places": "any work to account for",
    "gpu_idle": "a GPU",
    "calls": "host calls",
    "ranks": "a second rank",
    "os_calls": "operating-system calls",
    "functions": "Python stacks",
    "samples": "device samples",
    "memory": "memory at the ends of steps",
    "allocations": "a memory snapshot",
    "memory_segments": "a memory snapshot",
    "memory_events": "the events of a memory snapshot",
    "memory_totals": "the allocator's totals",
    "device_memory": "what CUDA handed out of the memory",
    "time": "any record of time",
    "kernel_profiles": "kernels measured by Nsight Compute",
    "device_samples": "samples of the GPUs",
    "links": "the machine's topology",
    "transports": "NCCL's log",
    "nccl_facts": "NCCL's log",
    "link_tests": "measured links",
}
#: What to record so that a rule gets what it needs.
WAKING = {
    "kernels": "record on a GPU: `perfdoctor run`, or nsys with --trace=cuda",
    "copies": "record on a GPU: `perfdoctor run`, or nsys with --trace=cuda",
    "calls": "record on a GPU with nsys --trace=cuda, or torch.profiler with the CUDA activity",
    "collectives": "record a training of several ranks",
    "ranks": "record every rank: `perfdoctor run -- torchrun …`",
    "steps": "record at least three whole steps: `perfdoctor run --steps 10`",
    "ops": "record with `perfdoctor run`, or torch.profiler with the CPU activity",
    "ranges": "record with `perfdoctor run`, or nsys with --trace=nvtx and ranges in the program",
    "os_calls": "record with nsys --trace=osrt",
    "functions": "record with torch.profiler and with_stack=True",
    "overheads": "record with torch.profiler",
    "memory": "record with `perfdoctor run`",
    "memory_events": "write a snapshot: torch.cuda.memory._record_memory_history(), then _dump_snapshot()",
    "device_memory": "record with nsys --cuda-memory-usage=true",
    "time": "record the training itself: `perfdoctor run -- python train.py`",
    "kernel_profiles": "record with `perfdoctor run --passes nsys,ncu`, or analyse a .ncu-rep beside the timeline",
    "places": "record the training itself: `perfdoctor run -- python train.py`",
    "device_samples": "record with `perfdoctor run`, or analyse what nvidia-smi printed beside the trace",
    "links": "analyse what `nvidia-smi topo -m` prints beside the trace",
    "transports": "analyse a log written with NCCL_DEBUG=INFO beside the trace",
    "nccl_facts": "analyse a log written with NCCL_DEBUG=INFO beside the trace",
    "link_tests": "analyse the output of nccl-tests beside the trace",
}
_MACHINE_SIGNALS = frozenset(("device_samples", "links", "transports", "nccl_facts", "link_tests"))
#: Of more rules that could not look only their number is told; `perfdoctor rules` lists them.
_MOST_NAMED = 30


def not_looked_at(diagnosis: Diagnosis) -> list[tuple[str, tuple[str, ...], str]]:
    """The skipped rules by what they lacked: (`calls and ranges`, their ids, what wakes them), largest group first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for outcome in diagnosis.outcomes:
        if outcome.status == "skipped":
            # Of memory or a machine alone no rule about time is to be told apart from the others.
            of_machine = tells_of_the_machine(diagnosis)
            alone = not diagnosis.time and (diagnosis.memory or of_machine)
            is_told_apart = of_machine and _MACHINE_SIGNALS.issuperset(outcome.missing)
            missing = ("time",) if alone and not is_told_apart else outcome.missing
            groups.setdefault(missing, []).append(clean(outcome.rule))
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [(_listed(missing) or "something", tuple(rules), waking(missing)) for missing, rules in ordered]


def lacked(diagnosis: Diagnosis) -> list[tuple[str, int]]:
    """What the skipped rules lacked, each signal by itself, with how many of them lacked it; the most first."""
    needs = {clean(outcome.rule): outcome.missing for outcome in diagnosis.outcomes}
    found: Counter[str] = Counter()
    for missing, rules, _ in not_looked_at(diagnosis):
        for rule in rules:
            # Without any work to account for, what else is missing tells more.
            telling = [need for need in needs[rule] if need != "places"]
            alone = not telling or missing == NEEDS["time"]
            found.update({missing} if alone else {_listed((need,)) for need in telling})
    return found.most_common()


def named(rules: Sequence[str]) -> Sequence[str]:
    """The rules of such a group by name; none where nobody would read them all."""
    return rules if len(rules) <= _MOST_NAMED else ()


def lacking(missing: str, rules: Sequence[str]) -> str:
    """`2 rules without calls: launch-bound, host-syncs`"""
    return ": ".join((f"{counted(len(rules), 'rule')} without {missing}", *filter(None, [", ".join(named(rules))])))


def waking(missing: Sequence[str]) -> str:
    """What to record so that a skipped rule can look; "" where that is not known."""
    ways = dict.fromkeys(WAKING[first] for first in (need.split("|")[0] for need in missing) if first in WAKING)
    return "; ".join(ways)


def _listed(needs: Sequence[str]) -> str:
    words = [" or ".join(NEEDS.get(each, clean(each).replace("_", " ")) for each in need.split("|")) for need in needs]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def failed(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Each rule that raised, with what it raised."""
    return [
        (clean(outcome.rule), clean(outcome.error or "", 160))
        for outcome in diagnosis.outcomes
        if outcome.status == "failed"
    ]
