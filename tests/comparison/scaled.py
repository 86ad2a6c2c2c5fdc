"""One training on more and more GPUs, of which is known what does not scale."""

from __future__ import annotations

import math
from pathlib import Path

from collectives import ALL_REDUCE, LATENCY_NS, Meetings
from generate import MS, US
from plant import write_kineto
from training import Machine, Training

from perfdoctor.comparison.scaling.recorded import of_run
from perfdoctor.comparison.scaling.records import Recorded
from perfdoctor.comparison.snapshot import of_examination
from perfdoctor.diagnosis.engine import examine
from perfdoctor.scale.read import read_run
from perfdoctor.system.progress import silent
from perfdoctor.vocabulary.rulebook import load_rules

#: What a link gives, in bytes a nanosecond, and what each hop of a ring takes.
RATE, HOP_NS = 100.0, 3 * US
#: By how much exposed communication grows with each doubling, and what of the step on one GPU is the update.
PER_DOUBLING_NS, SERIAL_SHARE = 1.5 * MS, 0.2
MESSAGES = (256_000, 4_000_000, 64_000_000)


def recorded(training: Training, folder: Path) -> Recorded:
    """Played, written as torch.profiler writes it, read and diagnosed."""
    write_kineto(training.play(), folder)
    rules = load_rules()
    examination = examine(read_run([folder], silent), list(rules.values()))
    return of_run(of_examination(folder.name, examination, rules, [folder]), examination.run)


def _plain(ranks: int, seed: int) -> Training:
    """Few layers, and no gradients but those that are planted."""
    training = Training(ranks=ranks, seed=seed, steps=6, layers=8, matmul_ns=900 * US, pointwise_ns=100 * US)
    training.buckets = False
    return training


def _sent_behind(training: Training, *messages: tuple[float, int]) -> None:
    """All-reduces of so many ns and bytes, one behind the other, when the backward pass is over."""

    def send(rank: Machine, _: int) -> Meetings:
        for transfer, size in messages:
            yield from rank.meet(
                ALL_REDUCE, transfer, rank.device_free[7], sizes=(size // 2, size // 2), data_type="bf16"
            )

    training.closing.append(send)


def weak(ranks: int, folder: Path) -> Recorded:
    """Each rank has the same work; gradients take so much longer with each doubling."""
    training = _plain(ranks, seed=ranks)
    _sent_behind(training, (PER_DOUBLING_NS * math.log2(ranks), 32_000_000))
    return recorded(training, folder)


def strong(ranks: int, folder: Path) -> Recorded:
    """The ranks share forward and backward pass; each does the whole update."""
    training = _plain(ranks, seed=ranks)
    shared = training.layers * (training.matmul_ns + training.pointwise_ns)
    training.optimizer_ns = shared * SERIAL_SHARE / (1 - SERIAL_SHARE)
    training.parts = (1 / ranks,)
    training.batch_bytes = round(8_000_000 / ranks)
    return recorded(training, folder)


def training_on_a_ring(ranks: int) -> Training:
    """Each rank has the same work; gradients go over a ring: each hop waits, each link carries its part of the bytes."""
    training = _plain(ranks, seed=ranks)
    hops, carried = 2 * (ranks - 1), 2 * (ranks - 1) / ranks
    _sent_behind(training, *((LATENCY_NS + hops * HOP_NS + carried * size / RATE, size) for size in MESSAGES))
    return training


def ring(ranks: int, folder: Path) -> Recorded:
    return recorded(training_on_a_ring(ranks), folder)


def strong_ring(ranks: int, folder: Path) -> Recorded:
    """The ranks share forward and backward pass, and send gradients of the same size over a ring."""
    training = training_on_a_ring(ranks)
    training.parts = (1 / ranks,)
    training.batch_bytes = round(8_000_000 / ranks)
    return recorded(training, folder)
