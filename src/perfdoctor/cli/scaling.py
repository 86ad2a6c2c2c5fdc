"""`perfdoctor compare --scaling`: what does one training gain from more GPUs?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from perfdoctor.cli import report_files
from perfdoctor.cli.analyze import AnalysisRequest, diagnosed
from perfdoctor.diagnosis.questions import RATES
from perfdoctor.errors import UsageError
from perfdoctor.patterns import regex
from perfdoctor.report.json_document import MARKER

if TYPE_CHECKING:
    from perfdoctor.cli.compare_output import Shown
    from perfdoctor.comparison.scaling.records import Kind, Recorded
    from perfdoctor.report.given_run import Given

DEFAULT_PAGE = "scaling.html"
_STATED = regex(r"([1-9]\d{0,5})=(.+)")
_RATE = regex(r"(\d{1,4}(?:\.\d+)?) ?(G|M)(B|bit)/s")

ByScaling = Annotated[
    bool,
    typer.Option(
        "--scaling",
        help="Compare one training on different numbers of GPUs: two recordings or more, in any order. Where a "
        "recording does not say among how many it was made: 4=PATH.",
    ),
]
Weak = Annotated[bool, typer.Option("--weak", help="With --scaling: each rank has the same work.")]
Strong = Annotated[bool, typer.Option("--strong", help="With --scaling: the ranks share the work.")]
Network = Annotated[
    str | None,
    typer.Option(
        "--network", metavar="RATE",
        help="With --scaling: what a network gives each GPU beyond the recorded ones, 50GB/s or 400Gbit/s.",
    ),
]  # fmt: skip


class Stated(Struct, frozen=True):
    """A recording of the series. `ranks`: as the user says; 0 where they do not."""

    path: str
    ranks: int = 0


class ScalingSeries(Struct, frozen=True):
    given: Sequence[Stated]
    kind: Kind = ""
    network: float = 0.0


def asked(paths: Sequence[str], *, weak: bool, strong: bool, network: str | None) -> ScalingSeries:
    """The series of these options. Raises UsageError, before anything is read, for what is none."""
    if len(paths) < 2:
        raise UsageError(
            f"--scaling takes two recordings or more, {len(paths)} {'is' if len(paths) == 1 else 'are'} given",
            do="Example: perfdoctor compare --scaling 1gpu/ 2gpu/ 8gpu/",
        )
    if weak and strong:
        raise UsageError("--weak and --strong exclude each other", do="Give one of them, or neither.")
    rate = _RATE.fullmatch(network) if network is not None else None
    if network is not None and not (rate and float(rate[1])):
        raise UsageError(f"--network {network}: that is no rate", do="Give what each GPU gets: 50GB/s or 400Gbit/s.")
    given = []
    for text in paths:
        found = _STATED.fullmatch(text)
        given.append(Stated(found[2], int(found[1])) if found and not Path(text).exists() else Stated(text))
    return ScalingSeries(
        given, "weak" if weak else "strong" if strong else "",
        float(rate[1]) * RATES[rate[2], rate[3]] if rate else 0.0,
    )  # fmt: skip


def show(series: ScalingSeries, given: Sequence[Given], wanted: AnalysisRequest, shown: Shown) -> None:
    local = [path for each in given for path in each.local]
    if shown.json_file:
        report_files.check_ours("--json", shown.json_file, MARKER, local)
    from perfdoctor.comparison.scaling.recorded import kept_for_replay
    from perfdoctor.comparison.scaling.series import scaling
    from perfdoctor.report.comparison import json_report

    recorded: list[Recorded] = []
    for stated, each in zip(series.given, given, strict=True):
        recorded = kept_for_replay([*recorded, _recorded(stated, each, wanted)])
    found = scaling(recorded, series.kind, series.network)
    shown.write(found, "perfdoctor.report.scaling", lambda: json_report.render_scaling(found), DEFAULT_PAGE, local)


def _recorded(stated: Stated, given: Given, wanted: AnalysisRequest) -> Recorded:
    """One recording of the series, read and diagnosed, or from its diagnosis.json."""
    from perfdoctor.comparison.scaling import recorded

    document = given.document()
    found = recorded.of_given(given.name, given.local, lambda: diagnosed(given.paths, wanted), wanted.known, document)
    return recorded.stated(found, stated.ranks) if stated.ranks else found
