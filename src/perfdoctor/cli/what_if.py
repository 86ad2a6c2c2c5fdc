"""What does `--what-if "RULE[=CHOICE], …"` ask? Fixes of what was found, or another size of the run."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from perfdoctor.errors import AskedWronglyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perfdoctor.diagnosis.prediction import Question
    from perfdoctor.vocabulary.rulebook import Rule

_SHARE = re.compile(r"(\d{1,3}(?:\.\d+)?) ?%")
_FACTOR = re.compile(r"(\d{1,3}(?:\.\d+)?) ?[x×]")
_RANKS = re.compile(r"([1-9]\d{0,5})(?:@(\d{1,4}(?:\.\d+)?) ?(G|M)(B|bit)/s)?")
#: Bytes a second of each unit that a network's rate may be told in.
_RATES = {("G", "B"): 1e9, ("M", "B"): 1e6, ("G", "bit"): 1e9 / 8, ("M", "bit"): 1e6 / 8}
_SIZES_SHOWN = ("batch=2x", "ranks=8", "ranks=64@50GB/s", "synthetic-data")
#: A batch that much smaller or larger is another training: its kernels are others than those that were recorded.
_SMALLEST, _LARGEST = 0.1, 64


def questions(text: str, known: Mapping[str, Rule]) -> tuple[Question, ...]:
    """The fixes asked for, in the order in which they are named. Raises AskedWronglyError, before anything is read.

    Whether a rule found something is known only behind the diagnosis: see `diagnosis/prediction.py`.
    """
    asked = [_question(each.strip(), known) for each in text.split(",") if each.strip()]
    if not asked:
        raise AskedWronglyError(
            "--what-if names no rule", do='Ask like this: --what-if "input-wait, launch-bound=50%", or "batch=2x".'
        )
    names = [question.rule for question in asked]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise AskedWronglyError(f"--what-if names {twice} twice", do="Name each only once.")
    return tuple(asked)


def _question(text: str, known: Mapping[str, Rule]) -> Question:
    from perfdoctor.diagnosis.prediction import PRECISIONS, Question
    from perfdoctor.records.findings import SIZES
    from perfdoctor.records.savings import CASES

    name, given, choice = (piece.strip() for piece in text.partition("="))
    if name in SIZES:
        amount, network = _amount(name, given, choice)
        return Question(name, choice, amount=amount, network_bytes_per_second=network)
    can_be_asked = [*(rule.id for rule in known.values() if rule.action), *_SIZES_SHOWN]
    if name not in known:
        raise AskedWronglyError(f"--what-if {name!r}: there is no such rule", do=_right_ones(name, can_be_asked))
    if name not in can_be_asked:
        raise AskedWronglyError(f"--what-if {name}: its fix cannot be simulated", do=_right_ones("", can_be_asked))
    choices = (*PRECISIONS.get(name, ()), *CASES)
    share = _SHARE.fullmatch(choice)
    part = float(share[1]) / 100 if share else 0.0
    if given and choice not in choices and not 0.01 <= part <= 1:
        raise AskedWronglyError(
            f"--what-if {name}={choice}: there is no such choice",
            do=f"Choices of {name}: {', '.join(choices)}, or a share from 1% to 100%.",
        )
    return Question(name, choice, part or None)


def _amount(name: str, given: str, choice: str) -> tuple[float, float]:
    """The factor of a batch, or how many ranks; and what a network gives each, in bytes/s. 0 where nothing is told."""
    asked = f"--what-if {name}{given}{choice}"
    if name == "synthetic-data":
        if given:
            raise AskedWronglyError(f"{asked}: there is nothing to choose", do="Ask for synthetic-data by itself.")
        return 0.0, 0.0
    if name == "ranks":
        ranks = _RANKS.fullmatch(choice)
        rate = float(ranks[2]) * _RATES[ranks[3], ranks[4]] if ranks and ranks[2] else 0.0
        if not ranks or (ranks[2] and not rate):
            raise AskedWronglyError(
                f"{asked}: that is no number of ranks",
                do="Ask for ranks=8, or over a network with what it gives each GPU: ranks=64@50GB/s (or @400Gbit/s).",
            )
        return float(ranks[1]), rate
    factor = _FACTOR.fullmatch(choice)
    if not factor or not _SMALLEST <= float(factor[1]) <= _LARGEST:
        raise AskedWronglyError(
            f"{asked}: that is no factor", do=f"Ask for {_SMALLEST}x to {_LARGEST}x of the recorded batch: batch=2x."
        )
    return float(factor[1]), 0.0


def _right_ones(name: str, can_be_asked: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, can_be_asked, n=3, cutoff=0.4)
    return f"Did you mean {', '.join(near)}?" if near else f"What can be asked: {', '.join(sorted(can_be_asked))}."
