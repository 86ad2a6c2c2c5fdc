"""What does a script read? The diagnosis as JSON, format 1: keys are added, never renamed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from perfdoctor import __version__
from perfdoctor.patterns import regex
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.document import (
    Document,
    DocumentRun,
    DocumentSteps,
    DocumentWork,
    FindingRow,
    ModuleRow,
    ModulesLeftOut,
)  # fmt: skip
from perfdoctor.records.findings import with_symptoms
from perfdoctor.records.time_split import TimeSplit
from perfdoctor.vocabulary.kinds import KERNEL_FAMILIES, MATH_PATHS, OP_PHASES
from perfdoctor.vocabulary.parts import IDLE_CAUSES

#: A model of a hundred layers has some two thousand modules, of half a kilobyte each; the page's table has them all.
MOST_MODULES = 200
_SURROGATES = regex("[\ud800-\udfff]")


def render(diagnosis: Diagnosis) -> str:
    """The document of a diagnosis as text. A key that only some documents have is left out of the others."""
    document = msgspec.to_builtins(_document(diagnosis), enc_hook=_builtin)
    if diagnosis.job is None:
        del document["job"]
    if diagnosis.real_time:
        del document["run"]["steps"]["real_time"]["stretch_by_part"]  # it stands in `steps`
    if diagnosis.efficiency:
        del document["efficiency"]["roofline"]
    for row in (*document["outcomes"], *document["findings"]):
        if not row["origin"]:
            del row["origin"]
    return as_text(document)


def _document(diagnosis: Diagnosis) -> Document:
    named = [cost for cost in diagnosis.modules if cost.path]
    outside = [cost for cost in diagnosis.modules if not cost.path]
    left_out = named[MOST_MODULES:]
    rows = (replace(advice, rank=rank) for rank, advice in enumerate(with_symptoms(diagnosis.findings), start=1))
    return Document(
        perfdoctor=__version__,
        run=_run(diagnosis),
        base_ns=diagnosis.base_ns,
        job=diagnosis.job,
        time=tuple(map(_complete, diagnosis.time)),
        recording=tuple(map(_complete, diagnosis.recording)),
        outcomes=diagnosis.outcomes,
        findings=tuple(FindingRow(**asdict(row) | {"symptoms": [each.rule for each in row.symptoms]}) for row in rows),
        prediction=diagnosis.prediction,
        critical_path=diagnosis.critical_path,
        efficiency=diagnosis.efficiency,
        roofline=diagnosis.efficiency.roofline if diagnosis.efficiency else None,
        memory=diagnosis.memory,
        kernels=diagnosis.kernels,
        modules=tuple(
            ModuleRow(**asdict(cost) | {"own_ns": cost.own_ns, "ns": cost.ns})
            for cost in (*named[:MOST_MODULES], *outside)
        ),
        modules_left_out=ModulesLeftOut(len(left_out), math.fsum(cost.own_ns for cost in left_out)),
        cost=diagnosis.cost,
        contenders=tuple(advice.rule for advice in diagnosis.contenders),
        run_time=diagnosis.run_time,
        gpu_metrics=diagnosis.gpu_metrics,
        collectives=diagnosis.collectives,
        notes=diagnosis.notes,
    )


def _run(diagnosis: Diagnosis) -> DocumentRun:
    real = diagnosis.real_time
    unrecorded = {
        "unrecorded_ns": real.measured_ns, "stretch": real.stretch, "stretch_by_part": real.stretch_by_part,
        "real_time": real,
    } if real else {}  # fmt: skip
    return DocumentRun(
        sources=diagnosis.sources, gpus=diagnosis.gpus, world_size=diagnosis.world_size,
        steps=DocumentSteps(**asdict(diagnosis.steps) | unrecorded | {"timed": diagnosis.timed}),
        items_per_step=diagnosis.items_per_step, contended_share=diagnosis.contended_share,
        processes=diagnosis.processes,
        work=DocumentWork(diagnosis.kind_of_work, diagnosis.server, diagnosis.framework), basis=diagnosis.basis,
        gpu_not_recorded=diagnosis.gpu_not_recorded, project=diagnosis.project,
    )  # fmt: skip


def _complete(split: TimeSplit) -> TimeSplit:
    """The split with 0 for every cause, family, path and phase that did not occur."""

    def complete(names: Iterable[str], given: Mapping[str, int]) -> dict[str, int]:
        return {**dict.fromkeys(names, 0), **given}

    return replace(
        split,
        idle_causes_ns=complete(IDLE_CAUSES, split.idle_causes_ns),
        compute_by_family_ns=complete(KERNEL_FAMILIES, split.compute_by_family_ns),
        matmul_ns_by_math_path=complete(MATH_PATHS, split.matmul_ns_by_math_path),
        compute_by_phase_ns=complete(OP_PHASES, split.compute_by_phase_ns),
    )


def as_text(document: Any) -> str:
    """Records, or what holds them, as JSON: null for NaN and infinity, no lone surrogates, no numpy numbers."""
    try:
        text = msgspec.json.encode(document, enc_hook=_builtin)
    except UnicodeEncodeError:
        text = msgspec.json.encode(_without_surrogates(msgspec.to_builtins(document, enc_hook=_builtin)))
    return msgspec.json.format(text, indent=2).decode() + "\n"


def plain(value: Any) -> Any:
    """A copy in JSON's types: what a reader of `as_text` gets."""
    return msgspec.json.decode(as_text(value))


def _builtin(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return value.item() if hasattr(value, "item") else str(value)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list | tuple) else value
