"""What does `--what-if "RULE[=CHOICE], …"` ask?"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from perfdoctor.errors import AskedWronglyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perfdoctor.replay.prediction import Question
    from perfdoctor.rulebook import Rule

_SHARE = re.compile(r"(\d{1,3}(?:\.\d+)?) ?%")


def questions(text: str, known: Mapping[str, Rule]) -> tuple[Question, ...]:
    """The cures asked for, in the order in which they are named. Raises AskedWronglyError, before anything is read.

    Whether a rule found something is known only behind the diagnosis: see `replay/prediction.py`.
    """
    asked = [_question(each.strip(), known) for each in text.split(",") if each.strip()]
    if not asked:
        raise AskedWronglyError(
            "--what-if names no rule", do='Ask like this: --what-if "input-wait, launch-bound=50%".'
        )
    names = [question.rule for question in asked]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise AskedWronglyError(f"--what-if names {twice} twice", do="Name each rule once.")
    return tuple(asked)


def _question(text: str, known: Mapping[str, Rule]) -> Question:
    from perfdoctor.replay.prediction import CASES, PRECISIONS, Question

    name, given, choice = (piece.strip() for piece in text.partition("="))
    if name == "ranks":
        raise AskedWronglyError(
            f"--what-if {text}: of other numbers of ranks a recording tells neither the links nor who comes late",
            do="Record on so many ranks, or name rules: `perfdoctor rules` lists them.",
        )
    can_be_asked = [rule.id for rule in known.values() if rule.lever]
    if name not in known:
        raise AskedWronglyError(f"--what-if {name!r}: there is no such rule", do=_right_ones(name, can_be_asked))
    if name not in can_be_asked:
        raise AskedWronglyError(
            f"--what-if {name}: what its cure brings cannot be played", do=_right_ones("", can_be_asked)
        )
    choices = (*PRECISIONS.get(name, ()), *CASES)
    share = _SHARE.fullmatch(choice)
    part = float(share[1]) / 100 if share else 0.0
    if given and choice not in choices and not 0.01 <= part <= 1:
        raise AskedWronglyError(
            f"--what-if {name}={choice}: there is no such choice",
            do=f"Choices of {name}: {', '.join(choices)}, or a share from 1% to 100%.",
        )
    return Question(name, choice, part or None)


def _right_ones(name: str, can_be_asked: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, can_be_asked, n=3, cutoff=0.4)
    return f"Did you mean {', '.join(near)}?" if near else f"What can be asked: {', '.join(sorted(can_be_asked))}."
