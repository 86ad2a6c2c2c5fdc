"""Which diagnosis does a diagnosis.json hold? All of it that is printed; its recording is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import asdict, replace

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.document import Document, FindingRow
from perfdoctor.records.findings import Advice, Rows
from perfdoctor.report import json_document
from perfdoctor.report.words.foreign_text import clean
from perfdoctor.vocabulary.basis import Basis
from perfdoctor.vocabulary.derivations import BOUNDS, SOURCES


def stored(name: str, path: Path) -> Diagnosis | None:
    """The diagnosis in a file; None where it is anything else. Raises PerfdoctorError, naming it so, if damaged."""
    written = json_document.document(name, path)
    if written is None:
        return None
    if json_document.BASE not in written:
        raise PerfdoctorError(
            f"{name} was written by an earlier version, and lacks what is printed now",
            do="Analyze its recording again; `perfdoctor compare` takes it as it is.",
        )
    try:
        return _diagnosis(json_document.typed(name, written))
    except (AssertionError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise PerfdoctorError(
            f"{name} is damaged: it lacks what a diagnosis has",
            do="Write it again: perfdoctor analyze RECORDING --json FILE",
        ) from error


def only_stored(paths: Sequence[object], options: Mapping[str, object], do: str) -> Diagnosis | None:
    """The diagnosis that the one path is, or holds; None for a recording.

    Raises UsageError, with this `do`, if one of the `options`, by name, was given: they ask more than it holds.
    """
    if len(paths) != 1 or not isinstance(path := paths[0], Path) or json_document.file_of(path) is None:
        return None
    if given := [name for name, value in options.items() if value]:
        raise UsageError(f"{given[0]} asks for the recording, and {path} holds its diagnosis alone", do=do)
    return stored(str(path), path)


def _check(of: Document) -> None:
    """Raises ValueError for what no diagnosis has, and its reports rely on."""
    for finding in of.findings:
        for rows in (each for each in finding.evidence if isinstance(each, Rows)):
            if {len(rows.units), *map(len, rows.rows)} != {len(rows.columns)}:
                raise ValueError("a row of evidence has not its columns")
        if finding.derivation and not all(each.source in SOURCES for each in finding.derivation.inputs):
            raise ValueError("a number of a formula is from nowhere")
        if finding.derivation and not all(each.by in BOUNDS for each in finding.derivation.bounds):
            raise ValueError("a saving is limited by nothing that is known")
    if any(split.window_ns <= 0 for split in (*of.time, *of.recording)):
        raise ValueError("a window has no length")
    if of.prediction and any(step.samples <= 0 for step in of.prediction.steps):
        raise ValueError("a predicted step has no samples")


def _diagnosis(of: Document) -> Diagnosis:
    _check(of)
    run, path, real = of.run, of.critical_path, of.run.steps.real_time
    findings, after = _tree(of.findings, None, 0)
    if after < len(of.findings):
        raise ValueError("a symptom does not stand behind its cause")
    return Diagnosis(
        sources=run.sources, gpus=run.gpus, world_size=run.world_size, steps=run.steps, time=of.time,
        recording=of.recording, kernels=of.kernels, outcomes=of.outcomes, findings=findings, prediction=of.prediction,
        notes=of.notes, base_ns=of.base_ns, kind_of_work=run.work.kind, server=run.work.server,
        framework=run.work.framework, basis=_basis(run.basis),
        critical_path=path and replace(path, share={clean(kind): part for kind, part in path.share.items()}),
        efficiency=of.efficiency and replace(of.efficiency, roofline=of.roofline),
        gpu_not_recorded=run.gpu_not_recorded, memory=of.memory, processes=run.processes,
        real_time=real and replace(real, stretch_by_part=run.steps.stretch_by_part or {}), job=of.job, cost=of.cost,
        modules=of.modules, items_per_step=run.items_per_step, contended_share=run.contended_share,
        run_time=of.run_time, gpu_metrics=of.gpu_metrics, collectives=of.collectives,
        timed=run.steps.timed, project=run.project,
    )  # fmt: skip


def _basis(of: Basis) -> Basis:
    """The basis with clean texts. What it is of stands behind the noun, with the blank that `clean` strips."""
    behind = clean(of.of)
    return replace(of, noun=clean(of.noun), of=f" {behind}" if behind else "")


def _tree(rows: Sequence[FindingRow], cause: str | None, begin: int) -> tuple[tuple[Advice, ...], int]:
    """The findings of this cause from that row on, with their symptoms inside, and the row after the last of them."""
    found = []
    while begin < len(rows) and rows[begin].symptom_of == cause:
        row = rows[begin]
        symptoms, begin = _tree(rows, row.rule, begin + 1)
        found.append(Advice(**asdict(row) | {"symptoms": symptoms}))
    return tuple(found), begin
