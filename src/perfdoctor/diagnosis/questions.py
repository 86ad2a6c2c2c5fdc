"""What does `--what-if "RULE[=CHOICE], …"` ask? Fixes of what was found, or another size of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from perfdoctor.errors import UsageError
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.nearest import near

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfdoctor.vocabulary.rulebook import Rule

_SHARE = regex(r"(\d{1,3}(?:\.\d+)?) ?%")
_FACTOR = regex(r"(\d{1,3}(?:\.\d+)?) ?[x×]")
_RANKS = regex(r"([1-9]\d{0,5})(?:@(\d{1,4}(?:\.\d+)?) ?(G|M)(B|bit)/s)?")
#: Bytes per second of each unit of a network's rate.
RATES = {("G", "B"): 1e9, ("M", "B"): 1e6, ("G", "bit"): 1e9 / 8, ("M", "bit"): 1e6 / 8}
_SIZES_SHOWN = ("batch=2x", "ranks=8", "ranks=64@50GB/s", "synthetic-data")
#: Outside of these factors of the batch other kernels would run than those that were recorded.
_SMALLEST, _LARGEST = 0.1, 64
#: Precisions that a finding's own range stands for. No rule assumes what TF32 saves over plain fp32: not offered.
PRECISIONS: Mapping[str, tuple[str, ...]] = {"fp32-matmuls": ("bf16", "fp16")}


class Question(Struct, frozen=True):
    """A fix that is asked for. `choice`: low, likely, high, a precision, or "" for the finding's own range.

    `share`: how far its action goes instead, from 0 to 1; then `choice` is that as it was written. Where `rule` names a
    size of the run (`findings.SIZES`), `amount` is the factor, or the number of ranks, and `network_bytes_per_second`
    what a network gives each of them one way (0: not given).
    """

    rule: str
    choice: str = ""
    share: float | None = None
    amount: float = 0.0
    network_bytes_per_second: float = 0.0


def questions(text: str, known: Mapping[str, Rule]) -> tuple[Question, ...]:
    """The requested fixes, in the order given. Raises UsageError, before anything is read.

    Whether a rule found something is known only after the diagnosis: see `diagnosis/answers.py`.
    """
    parsed = [_question(each.strip(), known) for each in text.split(",") if each.strip()]
    if not parsed:
        raise UsageError(
            "--what-if names no rule", do='Examples: --what-if "input-wait, launch-bound=50%", --what-if batch=2x.'
        )
    names = [question.rule for question in parsed]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"--what-if names {twice} twice", do="Give each one once.")
    return tuple(parsed)


def _question(text: str, known: Mapping[str, Rule]) -> Question:
    from perfdoctor.records.findings import SIZES  # noqa: PLC0415 numpy, before anything is read
    from perfdoctor.records.savings import CASES  # noqa: PLC0415

    name, given, choice = (piece.strip() for piece in text.partition("="))
    if name in SIZES:
        amount, network = _amount(name, given, choice)
        return Question(name, choice, amount=amount, network_bytes_per_second=network)
    possible = [*(rule.id for rule in known.values() if rule.action or rule.saves_time), *_SIZES_SHOWN]
    if name not in known:
        raise UsageError(f"--what-if {name!r}: there is no such rule", do=near(name, possible))
    if name not in possible:
        why, do = "it saves no time by itself", near("", possible)
        if known[name].origin:
            why, do = "its document has no `action`", 'Write which work gets shorter: action = "kernels".'
        raise UsageError(f"--what-if {name}: its fix cannot be simulated: {why}", do=do)
    choices = (*PRECISIONS.get(name, ()), *CASES)
    share = _SHARE.fullmatch(choice)
    part = float(share[1]) / 100 if share else 0.0
    if given and choice not in choices and not 0.01 <= part <= 1:
        raise UsageError(
            f"--what-if {name}={choice}: there is no such choice",
            do=f"Choices of {name}: {', '.join(choices)}, or a share from 1% to 100%.",
        )
    return Question(name, choice, part or None)


def _amount(name: str, given: str, choice: str) -> tuple[float, float]:
    """The factor of a batch or the number of ranks; and a network's bytes/s for each rank. 0 where not given."""
    option = f"--what-if {name}{given}{choice}"
    if name == "synthetic-data":
        if given:
            raise UsageError(f"{option}: synthetic-data has no value", do="Use --what-if synthetic-data.")
        return 0.0, 0.0
    if name == "ranks":
        ranks = _RANKS.fullmatch(choice)
        rate = float(ranks[2]) * RATES[ranks[3], ranks[4]] if ranks and ranks[2] else 0.0
        if not ranks or (ranks[2] and not rate):
            raise UsageError(
                f"{option}: that is no number of ranks",
                do="Use ranks=8, or over a network with its bandwidth for each GPU: ranks=64@50GB/s (or @400Gbit/s).",
            )
        return float(ranks[1]), rate
    factor = _FACTOR.fullmatch(choice)
    if not factor or not _SMALLEST <= float(factor[1]) <= _LARGEST:
        raise UsageError(
            f"{option}: that is no factor", do=f"Use {_SMALLEST}x to {_LARGEST}x of the recorded batch: batch=2x."
        )
    return float(factor[1]), 0.0
