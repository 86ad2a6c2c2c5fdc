"""What do stacks and counters that were sampled from outside say about a training, without any recording of it?

The kinds of work are functions of PyTorch that run while it does them, as they are anchors of sampled stacks beside a
recording. A sample belongs to the first kind whose function is in its stack; the order is from what holds others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from perfdoctor.model.timeline import Frame
from perfdoctor.records.outside import OutsideProcess, OutsideShare
from perfdoctor.vocabulary.names import python_code

#: By what is shown: the functions in a stack, and the rule that says more. A loader's batch is made inside of its wait.
KINDS: tuple[tuple[str, Any, str], ...] = (
    ("waits for the next batch, or makes it", python_code.NEXT_BATCH, "input-wait"),
    ("writes a checkpoint", python_code.SAVE, "blocking-checkpoint"),
    ("is in a collective of torch.distributed", python_code.COLLECTIVE, "exposed-communication"),
    ("backward pass", python_code.BACKWARD, ""),
    ("update of the optimizer", python_code.UPDATE, ""),
    ("forward pass", python_code.FORWARD, ""),
)
OTHER = "other Python, and what it calls"
#: Twice as many samples as are needed to name a line.
FEWEST_SAMPLES = 10


def of_process(pid: int, cores: float, rows: Frame) -> OutsideProcess:
    """What the main thread of one process did. `rows`: of the signal `stack_samples`, of this process."""
    main = rows.take(rows["is_main"] & ~rows["is_worker"]) if len(rows) else rows
    stacks, lines = list(main.text("stack")), list(main.text("name"))
    counts = np.asarray(main["samples"], dtype=np.int64).tolist()
    total = sum(counts)
    if not total:
        return OutsideProcess(pid, 0, cores)
    kinds = [next((name for name, mark, _ in KINDS if mark.search(stack)), OTHER) for stack in stacks]
    shares = tuple(
        _share(name, rule, kinds, lines, counts) for name, rule in (*((a, c) for a, _, c in KINDS), (OTHER, ""))
    )
    still = stacks[0].rpartition("\n")[2] if len(set(stacks)) == 1 and total >= FEWEST_SAMPLES else ""
    found = sorted((each for each in shares if each.samples), key=lambda each: -each.samples)
    return OutsideProcess(pid, total, cores, tuple(found), still)


def _share(name: str, rule: str, kinds: Sequence[str], lines: Sequence[str], counts: Sequence[int]) -> OutsideShare:
    of_line: Counter[str] = Counter()
    for kind, line, count in zip(kinds, lines, counts, strict=True):
        if kind == name:
            of_line[line] += count
    own = [(line, count) for line, count in of_line.most_common() if line]
    samples = sum(of_line.values())
    line, in_line = own[0] if own else ("", 0)
    return OutsideShare(name, samples / sum(counts), samples, rule, line, in_line / samples if samples else 0.0)
