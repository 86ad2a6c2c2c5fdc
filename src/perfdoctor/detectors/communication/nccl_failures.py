"""NCCL reported errors that stopped what it was about to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.communication.nccl import NcclLog
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Rows
from perfdoctor.vocabulary.names.nccl import ERROR_ENDS, HARMLESS


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find a warning, and an error that was handed up to where communicators and collectives begin."""
    log = NcclLog.of(run.timeline)
    returned = [
        (file, int(code), count)
        for file, code, count in zip(*_columns(log, "returned"), strict=True)
        if ERROR_ENDS.match(file) and code in _ERRORS
    ]
    warnings = [
        (text, count) for text, _, count in zip(*_columns(log, "warning"), strict=True) if not HARMLESS.search(text)
    ]
    if sum(count for _, _, count in returned) < at["min_errors"] or not warnings:
        return
    warnings.sort(key=lambda each: -each[1])
    file, code, _ = returned[0]
    rows: dict[str, int] = {}
    for text, count in warnings:
        rows[text] = rows.get(text, 0) + count
    yield Finding(
        rule="nccl-failures",
        saving_ns_per_step=NO_SAVING,
        confidence="high",
        values={
            "count": sum(count for _, _, count in returned),
            "kind": _ERRORS[code],
            "where": file,
            "warning": warnings[0][0],
            "times": rows[warnings[0][0]],
        },
        evidence=(Rows("What NCCL warned of", ("text", "times"), ("text", "count"), tuple(rows.items())[:8]),),
    )


#: ncclResult_t (nccl.h); 0 is success, 7 means that it is still on its way.
_ERRORS = {
    1: "an error of CUDA",
    2: "an error of the system",
    3: "an internal error",
    4: "an invalid argument",
    5: "an invalid use",
    6: "an error of another rank",
}


def _columns(log: NcclLog, name: str) -> tuple[list[str], list[float], list[int]]:
    rows = log.rows(name)
    return list(rows.text("value")), rows.floats("amount").tolist(), rows["count"].tolist()
