"""What is known of treatments that were tried: records, which are treat.json."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

FORMAT = 1

TrialVerdict = Literal[
    "keep", "no effect", "slower", "changes the numbers", "failed", "not decided", "nothing to change"
]
SameTraining = Literal["equal", "rounding", "differs", "not judged", "unknown", "another training"]


class ShareRange(Struct, frozen=True):
    """Shares of the untreated step that are saved: negative where it got longer. None: no end is known."""

    low: float | None
    likely: float
    high: float | None


class LossDifference(Struct, frozen=True):
    """Are the losses those of the untreated program?

    `largest`: of the relative differences, over `losses` of them; `own`: the largest of the untreated program against
    itself; `carried`: how far roundings of the parameters are carried in as many steps, where that was tried.
    `parameters`: are they equal, bit by bit, after the last step? None where that was not asked for.
    """

    verdict: SameTraining
    why: str = ""
    losses: int = 0
    largest: float = 0.0
    own: float = 0.0
    carried: float | None = None
    parameters: bool | None = None


class TrialRun(Struct, frozen=True):
    """One run of the program. `fixes`: what it was treated with. `mean_ns`: of its steady steps, `steps` of them.

    `start_s`: from its start to its first step; `others`: cores that other programs used meanwhile. `why`: it failed.
    """

    number: int
    fixes: tuple[str, ...]
    mean_ns: float = 0.0
    steps: int = 0
    start_s: float = 0.0
    wall_s: float = 0.0
    others: float = 0.0
    host_bytes: int = 0
    gpu_bytes: int = 0
    why: str = ""


class TriedFix(Struct):
    """A row of the table. `promised`: what the diagnosis predicted; `measured`: what the pairs show.

    `once_s`: so much longer took the start and the first steps. `host_bytes`, `gpu_bytes`: before and after (0: none).
    `patch`: lines for the program.
    """

    fix: str
    title: str
    rule: str
    verdict: TrialVerdict
    why: str = ""
    promised: ShareRange | None = None
    measured: ShareRange | None = None
    pairs: int = 0
    disturbed: int = 0
    once_s: float = 0.0
    host_bytes: tuple[int, int] = (0, 0)
    gpu_bytes: tuple[int, int] = (0, 0)
    loss: LossDifference = field(default_factory=lambda: LossDifference("unknown"))
    patch: str = ""
    touches: str = ""
    risk: str = ""
    measured_before: str = ""


class Together(Struct, frozen=True):
    """The best fixes together, and what that saves; without pairs it was not tried together."""

    fixes: tuple[str, ...]
    measured: ShareRange | None
    pairs: int = 0
    why: str = ""
    loss: LossDifference = LossDifference("unknown")


class TreatResult(Struct):
    """All of one `perfdoctor treat`. `untreated_ns`: the mean step of the untreated runs, of which there were `runs`.

    `steps_of_turn`: programs were at work at once and took turns of so many steps; 0: each was run alone, and
    `why_alone`. `level`: each interval misses with at most this chance, however often one looked.
    """

    format: int = FORMAT
    perfdoctor: str = ""
    command: list[str] = field(default_factory=list)
    torch: str = ""
    device: str = ""
    cores: int = 0
    ranks: int = 1
    parameter_bytes: int = 0
    untreated_ns: float = 0.0
    steps_per_run: int = 0
    steps_of_turn: int = 0
    why_alone: str = ""
    level: float = 0.0
    seconds: float = 0.0
    budget_s: float = 0.0
    is_interrupted: bool = False
    rows: list[TriedFix] = field(default_factory=list)
    together: Together | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    runs: list[TrialRun] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
