"""Which options send a diagnosis to other tools, and say what it costs?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from perfdoctor.cli import completion
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.patterns import regex

if TYPE_CHECKING:
    from perfdoctor.hardware.prices import Price

Metrics = Annotated[
    Path | None,
    typer.Option("--metrics", metavar="FILE", help="Write OpenMetrics for node_exporter's textfile collector: *.prom."),
]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="TRACKER",
        help="Log to mlflow, wandb or tensorboard[=FOLDER], if it is installed; may be repeated.",
        autocompletion=completion.trackers,
    ),
]
GpuHourPrice = Annotated[
    str | None,
    typer.Option("--gpu-hour-price", metavar="PRICE", help="What a GPU costs an hour, 2.50 or 2.50EUR: shows costs."),
]
ShowCost = Annotated[
    bool, typer.Option("--cost", help="Show costs by a dated list price of the GPU, or by --gpu-hour-price.")
]

_PRICE = regex(r"(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})\s*([A-Za-z]{3}|[€$£¥₹])?")


class Tracker(Struct, frozen=True):
    """`folder`: where the files of TensorBoard go; None for where they usually go."""

    name: str
    folder: Path | None = None


class Outside(Struct, frozen=True):
    """What goes to other tools."""

    metrics: Path | None = None
    trackers: tuple[Tracker, ...] = ()


class Pricing(Struct, frozen=True):
    """Costs are shown. `price`: the user's own; None for the list price of the GPU."""

    price: Price | None = None


def needs_metrics(option: str) -> None:
    """Raises PerfdoctorError where what makes OpenMetrics is not installed."""
    _needs("prometheus_client", option, "pip install 'perfdoctor[metrics]'")


def needs_remote(option: str, folder: str) -> None:
    """Raises PerfdoctorError where the folder is s3:// or the like, and what writes there is not installed."""
    from perfdoctor.system import remote

    if remote.is_url(remote.local(folder)):
        _needs("fsspec", option, "pip install 'perfdoctor[remote]'")


def outside(metrics: Path | None, log: Sequence[str]) -> Outside:
    """The outputs of `--metrics` and `--log`. Raises PerfdoctorError, before any work, if one cannot be written."""
    if metrics is not None:
        from perfdoctor.cli import report_files

        needs_metrics("--metrics")
        if metrics.is_dir() or not metrics.parent.is_dir():
            what = f"--metrics {metrics}: there is no such folder for a file"
            raise PerfdoctorError(what, do="Name a file in a folder.")
        report_files.check_ours("--metrics", metrics, report_files.METRICS_MARKER, ())
    return Outside(metrics, tuple(dict.fromkeys(_tracker(text) for text in log)))


def pricing(price: str | None, *, cost: bool) -> Pricing | None:
    """How the run is priced; None without `--gpu-hour-price` and `--cost`. Raises UsageError for what is no price."""
    if price is None:
        return Pricing() if cost else None
    from perfdoctor.hardware.prices import Price

    found = _PRICE.fullmatch(price.strip())
    if not found or not float(found[1]):
        raise UsageError(
            f"--gpu-hour-price {price}: that is no price",
            do="Give a number, and a currency if you like: 2.50 or 2.50EUR.",
        )
    return Pricing(Price(float(found[1]), (found[2] or "").upper()))


def _tracker(text: str) -> Tracker:
    name, _, folder = text.partition("=")
    if name not in completion.TRACKERS or (folder and name != "tensorboard"):
        raise UsageError(
            f"--log {text}: there is no such tracker", do=f"Known: {', '.join(completion.TRACKERS)}[=FOLDER]."
        )
    _needs(name, f"--log {name}", f"pip install {name}")
    return Tracker(name, Path(folder) if folder else None)


def _needs(module: str, option: str, install: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise PerfdoctorError(f"{option} needs a package that is not installed: {module}", do=install)
