"""When did each step of a whole run end, and where did the training thread stand now and then?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from perfdoctor.model.columns import Ints, Mask


class WholeRun(Struct, frozen=True, eq=False):
    """One process from its first step to its end. Times are ns since `start_unix_ns`, the end of its first step or a
    moment before.

    `ends_ns`: ends of steps; `sites`: for each, which of `site_lines` (`file(line): function`) asked for it, called by
    which of `site_callers` (with the line on which that function begins). Length
    number n lies between the ends n and n + 1; of the half-open `windows` of lengths recording made them longer.
    Samples are even in time: `at_ns`, the number of the `stacks` entry, whether a module was in evaluation mode, and
    the bytes that the process had written. A stack has numbers of `frames`, innermost first; `begins`: on which line
    a frame's function begins; `own` are the user's, `without_gradients` inside of `torch.no_grad()`, `acting` in a loop
    that steps an environment. `iterators`: begin, end and number of the loader, for each iterator that was made.
    `code`: text of lines, by `file(line)`.
    """

    rank: int
    start_unix_ns: int
    process_unix_ns: int
    end_ns: int
    parameter_bytes: int
    ends_ns: Ints
    sites: Ints
    site_lines: Sequence[str]
    site_callers: Sequence[str]
    windows: Sequence[tuple[int, int]]
    at_ns: Ints
    stack: Ints
    evaluating: Mask
    written_bytes: Ints
    frames: Sequence[str]
    begins: Sequence[int]
    own: frozenset[int]
    without_gradients: frozenset[int]
    acting: frozenset[int]
    stacks: Sequence[Sequence[int]]
    iterators: Ints
    code: Mapping[str, Sequence[str]]


class WatchedRun(Struct, frozen=True, eq=False):
    """How long the steps of one rank were in the whole run in which this was recorded, piece by piece.

    Each piece begins with step `first`; `low_ns`, `median_ns` and `high_ns` are quartiles of its steps. `recorded`: a
    window was recorded in it, which made its steps longer.
    """

    rank: int
    first: Ints
    low_ns: Ints
    median_ns: Ints
    high_ns: Ints
    recorded: Mask
