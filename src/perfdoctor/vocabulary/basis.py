"""What are a recording's numbers for: a step, an iteration, an execution of a range, or all that was recorded?

Rules' documents, and the labels of evidence, are written for the steps of a training. A recording in which none were
found gets the same sentences in words that fit: `a 31.2 ms step` becomes `the 31.2 ms recorded`, `40 kernels a step`
becomes `40 kernels`; a program that answers requests is no training.
"""

from __future__ import annotations

import re

from msgspec import Struct

from perfdoctor.patterns import regex

#: What a number is a part of: `of a {step_ms:.1f} ms step`.
_PART_OF = regex(r"\bof an? (\{\w+:[^{}]*\} ms) step\b")
#: In how many steps it was seen: `, in {steps_hit:.0f} of {steps_seen:.0f} recorded steps`.
_SEEN_IN = regex(r",? in \{steps_hit[^{}]*\} of \{steps_seen[^{}]*\} (?:recorded )?steps\b")
#: A rate: `{kernels_per_step:.0f} kernels a step`, `Largest of them, a step`.
_RATE = regex(r"(?<! of)(?<! in)(,?) (?:a|per) step\b")
_ONE = regex(r"\b(An?|One|Each|Every|Per|The|Next|This|Whole) (whole )?step\b", re.IGNORECASE)
#: Steps of a recurrence are no steps of the program, and a placeholder (`{steps:.0f}`) or an option is no word.
_SEVERAL = regex(r"(?<!time )(?<![{-])\bsteps\b(?!\()")
#: What is called otherwise in a program that may train nothing.
_NO_TRAINING = (
    (regex(r"\b(t|T)raining(?:'s)?( process)? thread\b"), {"t": "main thread", "T": "Main thread"}),
    (regex(r"\b(t|T)raining\b"), {"t": "program", "T": "Program"}),
)
#: And in one that answers requests, in sentences and in code.
_SERVING = (
    *_NO_TRAINING,
    (regex(r"\b(t)rain\.py\b"), {"t": "main.py"}),
    (regex(r"\b(t)rain_step\(\w+\)"), {"t": "run(request)"}),
    (regex(r"\b(f)or (?:step, )?batch in (?:enumerate\()?loader\)?:"), {"f": "for request in requests:"}),
)
#: What a program repeats, where the recording does not show as what.
_ITERATION = "iteration"


def _an(noun: str) -> str:
    return f"an {noun}" if noun[:1] in "aeiou" else f"a {noun}"


class Basis(Struct, frozen=True):
    """`noun`: what numbers are for one of, "" where nothing was found to repeat; `of`: of what, behind the noun.

    `serves`: the program answers requests, and trains nothing. `computes`: it may do anything on a GPU, but no PyTorch.
    """

    noun: str
    of: str = ""
    serves: bool = False
    computes: bool = False

    @property
    def sought(self) -> str:
        """Name of what was sought where nothing was found to repeat: `steps`, `iterations`."""
        return f"{_ITERATION if self.serves or self.computes else 'step'}s"

    @property
    def each(self) -> str:
        """Words to append to a number: ` a step`; "" if the number is for all that was recorded."""
        return f" {_an(self.noun)}{self.of}" if self.noun else ""

    @property
    def short(self) -> str:
        """Words to append to the heading of a column: ` a step`, ` an execution`."""
        return f" {_an(self.noun)}" if self.noun else ""

    @property
    def one(self) -> str:
        """Name of what numbers are for: `one step`, `the whole recording`."""
        return f"one {self.noun}{self.of}" if self.noun else "the whole recording"

    @property
    def whole(self) -> str:
        """Name of what shares are taken of: `the step`, `the recording`."""
        return f"the {self.noun or 'recording'}"

    def numbers(self, template: str) -> str:
        """A sentence or a label with numbers, before they are filled in."""
        if self == STEP:
            return template
        part_of = rf"of a \1 {self.noun}{self.of}" if self.noun else r"of the \1 recorded"
        seen = _PART_OF.sub(part_of, template)
        if self.noun:
            return self.prose(_SEVERAL.sub(f"{self.noun}s", _RATE.sub(rf"\1{self.each}", seen)))
        return self.prose(_RATE.sub("", _SEEN_IN.sub("", seen)))

    def prose(self, text: str) -> str:
        """A text about programs as such: what they repeat is a step only where steps were found."""
        said = text if self.noun == "step" else _ONE.sub(_one_iteration, text)
        others = _NO_TRAINING if self.computes else ()
        for pattern, words in _SERVING if self.serves else others:
            said = pattern.sub(lambda found, words=words: words[found[1]], said)  # type: ignore[misc]
        return said


def _one_iteration(found: re.Match[str]) -> str:
    article = found[1] + "n" if found[1].lower() == "a" and not found[2] else found[1]
    return f"{article} {found[2] or ''}{_ITERATION}"


STEP = Basis("step")
ITERATION = Basis(_ITERATION)
EXECUTION = Basis("execution", " of the range")
RECORDING = Basis("")
