"""Which values does the user give with `--gpu`, `--peak`, `--tokens-per-step` and `--parameters`?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli import completion
from perfdoctor.errors import UsageError
from perfdoctor.patterns import regex

if TYPE_CHECKING:
    from perfdoctor.model.timeline import UserValues

Gpu = Annotated[
    str | None,
    typer.Option(
        help="The GPU, where the recording does not contain it: 'H100 SXM'.",
        metavar="NAME",
        autocompletion=completion.gpus,
    ),
]
Peak = Annotated[
    list[str] | None,
    typer.Option(
        help="A peak of the GPU, dense: bf16=989T in FLOP/s, memory=3.35T in bytes/s; may be repeated.",
        metavar="KEY=VALUE",
        autocompletion=completion.peaks,
    ),
]
TokensPerStep = Annotated[
    str | None,
    typer.Option(
        help="Tokens or samples that one GPU trains on in a step (divided by the GPUs that one model copy uses).",
        metavar="N",
    ),
]
Parameters = Annotated[
    str | None,
    typer.Option(help="Parameters of the model, 70B: MFU from 6 · parameters · tokens (inference: 2 ·).", metavar="N"),
]

_NUMBER = regex(r"(\d+(?:\.\d*)?(?:e[+]?\d{1,3})?)\s*([kMGBTP]?)")
_POWERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}


def user_values(
    gpu: str | None, peaks: Sequence[str], tokens_per_step: str | None, parameters: str | None
) -> UserValues | None:
    """The values of these options; None without any. Raises UsageError, before anything is read, for a wrong one."""
    if gpu is None and not peaks and tokens_per_step is None and parameters is None:
        return None
    from perfdoctor.model.timeline import UserValues

    if parameters is not None and tokens_per_step is None:
        raise UsageError(
            "--parameters needs --tokens-per-step",
            do="Give both: a step's model FLOP are 6 · parameters · tokens (inference: 2 ·).",
        )
    from perfdoctor.hardware.peaks import the_one_named

    return UserValues(
        gpu=the_one_named(gpu).name if gpu is not None else "",
        peaks=dict(_peak(text) for text in peaks),
        tokens_per_step=_count("--tokens-per-step", tokens_per_step, "16384, or 16k"),
        parameters=_count("--parameters", parameters, "7e9, or 7B"),
    )


def _peak(text: str) -> tuple[str, float]:
    from perfdoctor.hardware.peaks import LEAST_RATE, SETTABLE

    name, _, given = (piece.strip() for piece in text.partition("="))
    rate = number(given)
    if name not in SETTABLE:
        raise UsageError(f"--peak {text}: there is no peak {name!r}", do=f"Known: {', '.join(SETTABLE)}.")
    if rate is None or rate < LEAST_RATE:
        unit = "bytes/s" if name in ("memory", "host_link") else "FLOP/s"
        raise UsageError(
            f"--peak {text}: {given!r} is no rate in {unit}",
            do=f"Give a number, with k, M, G, T or P if you like: --peak {name}={given if rate else '3.35'}T.",
        )
    return name, rate


def _count(option: str, text: str | None, example: str) -> float:
    if text is None:
        return 0.0
    count = number(text)
    if not count:
        raise UsageError(f"{option} {text}: that is no number above zero", do=f"Give a number: {option} {example}.")
    return count


def number(text: str) -> float | None:
    """The number, perhaps with a decimal suffix (`989e12`, `989T`, `70B`); None if it is none, or not finite."""
    found = _NUMBER.fullmatch(text.strip())
    if not found:
        return None
    value = float(found[1]) * _POWERS[found[2]]
    return value if math.isfinite(value) else None
