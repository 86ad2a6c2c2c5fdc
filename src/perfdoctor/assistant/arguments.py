"""What may each tool be given? Types and bounds: the schemas that clients get are made of them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

#: Rows of one answer, of all tools that have pages.
MOST_ROWS = 200
#: Of one answer. The names of all fields of a diagnosis, with a little of each, are some 1,200; some clients warn of
#: answers of more than 10,000, or cut them.
LEAST_TOKENS, DEFAULT_TOKENS, MOST_TOKENS = 1_500, 2_000, 12_000
_LONGEST_PATH, _LONGEST_NAME, _LONGEST_SQL = 1_024, 200, 10_000
_MOST_RUNS = 8
_LATEST_NS = 1 << 62

Path = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=_LONGEST_PATH,
        description="A run folder, a folder of traces (one a rank), or a file, below the server's root; analyze, "
        "findings and compare take a diagnosis.json, too.",
    ),
]
Paths = Annotated[list[Path], Meta(min_length=1, max_length=_MOST_RUNS, description="One run, or several of it.")]
Range = Annotated[
    str, Meta(min_length=1, max_length=_LONGEST_NAME, description="Only executions of this user range, as recorded.")
]
Steps = Annotated[
    str, Meta(pattern=r"^[1-9][0-9]{0,6}(\.\.[1-9][0-9]{0,6})?$", description="Only these steady steps: 3 or 3..5.")
]
RuleId = Annotated[str, Meta(min_length=1, max_length=_LONGEST_NAME, description="A rule's id, such as input-wait.")]
Rank = Annotated[int, Meta(ge=0, le=10_000_000, description="Only this rank.")]
Part = Annotated[str, Meta(min_length=1, max_length=_LONGEST_NAME, description="Only names that contain this text.")]
Cursor = Annotated[
    str, Meta(pattern=r"^[0-9]{1,7}$", description="next_cursor of the last answer, for the rows after it.")
]
Limit = Annotated[int, Meta(ge=1, le=MOST_ROWS, description=f"Most rows of the answer, {MOST_ROWS} at most.")]
Moment = Annotated[int, Meta(ge=-_LATEST_NS, le=_LATEST_NS, description="ns on the recording's clock.")]
Signal = Literal["kernels", "copies", "collectives", "calls", "ops", "ranges"]


class Bounds(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What every tool takes. Only the named arguments are allowed."""

    max_tokens: Annotated[
        int, Meta(ge=LEAST_TOKENS, le=MOST_TOKENS, description="About how long the answer may be.")
    ] = DEFAULT_TOKENS
    more: (
        Annotated[
            str,
            Meta(
                pattern=r"^[^:]{1,400}:[0-9]{1,9}$",
                description="What an answer left out, as its not_shown names it; all else as it was asked.",
            ),
        ]
        | None
    ) = None


class _Paged(Bounds, frozen=True, kw_only=True):
    """What tools with rows take."""

    cursor: Cursor = "0"
    limit: Limit = 50


class _OfRecording(Bounds, frozen=True, kw_only=True):
    """Arguments that choose one recording, or a part of it."""

    path: Path
    range: Range | None = None
    steps: Steps | None = None


class Recordings(_Paged, frozen=True, kw_only=True):
    path: Path = "."


class Analyze(_OfRecording, frozen=True, kw_only=True):
    pass


class Findings(_OfRecording, frozen=True, kw_only=True):
    rule: RuleId | None = None
    cursor: Cursor = "0"
    limit: Annotated[int, Meta(ge=1, le=20)] = 3


class Explain(Bounds, frozen=True, kw_only=True):
    rule: RuleId


class WhatIf(_OfRecording, frozen=True, kw_only=True):
    changes: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=500,
            description="Rules whose findings are fixed, or another size, with commas: "
            "'input-wait, launch-bound=50%', 'batch=2x', 'ranks=8'. A rule may have =low, =likely, =high or a share.",
        ),
    ]


class Compare(Bounds, frozen=True, kw_only=True):
    before: Path | Paths
    after: Path | Paths


class Check(Bounds, frozen=True, kw_only=True):
    baseline: Path | Paths
    after: Path | Paths
    fail_above: Annotated[
        float, Meta(ge=0, le=10, description="The change of the step that fails, as a share: 0.03 is 3 %.")
    ] = 0.03


class RunNext(_OfRecording, frozen=True, kw_only=True):
    pass


class Kernels(_OfRecording, frozen=True, kw_only=True):
    rank: Rank | None = None
    family: Annotated[str, Meta(min_length=1, max_length=40, description="Such as gemm or elementwise.")] | None = None
    name_contains: Part | None = None
    cursor: Cursor = "0"
    limit: Limit = 20


class TimelineSlice(_Paged, frozen=True, kw_only=True):
    path: Path
    start_ns: Moment | None = None
    end_ns: Moment | None = None
    rank: Rank | None = None
    signals: Annotated[tuple[Signal, ...], Meta(min_length=1, max_length=6)] = ("kernels", "copies", "collectives")
    name_contains: Part | None = None
    min_duration_ns: Annotated[int, Meta(ge=0, le=_LATEST_NS, description="Only events at least so long.")] = 0


class Query(_Paged, frozen=True, kw_only=True):
    path: Path
    sql: Annotated[str, Meta(min_length=1, max_length=_LONGEST_SQL, description="One SELECT or WITH.")]


class History(_Paged, frozen=True, kw_only=True):
    path: Annotated[str, Meta(min_length=1, max_length=_LONGEST_PATH, description="The history's file.")] | None = None
    run: (
        Annotated[
            str,
            Meta(min_length=1, max_length=_LONGEST_NAME, description="All of one run: its id, last, last~1 or a pin."),
        ]
        | None
    ) = None
    metric: (
        Annotated[
            str, Meta(min_length=1, max_length=60, description="Follow a number: step, mfu, memory, idle, input_wait …")
        ]
        | None
    ) = None
    limit: Limit = 20
