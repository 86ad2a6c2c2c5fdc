"""How is what was found in a running training put into words? One line each, the same in every place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean_name
from perfdoctor.watching.anomalies import ANSWERS, Anomaly
from perfdoctor.watching.document import RankNow, WatchDocument
from perfdoctor.watching.hangs import Hang
from perfdoctor.watching.windows import WindowState

_CAUSES = {
    "input": "waiting for the next batch",
    "host": "more work of the training thread",
    "cores": "waiting for a core: other programs use them",
    "device": "the GPU takes longer",
}
_HELD_BY = {"heat": "heat", "brake": "its power supply (power brake)", "hardware": "its hardware"}
_WHY = {
    "first": "to compare with", "asked": "as asked for", "level": "steps are longer", "drift": "steps grow longer",
    "slow-steps": "slow steps come regularly", "input": "input cannot keep up", "memory": "memory grows",
    "behind": "a rank falls behind", "throttled": "a GPU is held back",
}  # fmt: skip


def anomaly(found: Anomaly) -> str:
    """One sentence or two."""
    return _ANOMALIES[found.kind](found)


def _number(found: Anomaly, name: str) -> float:
    value = found.values.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def _text(found: Anomaly, name: str) -> str:
    return clean_name(str(found.values.get(name, "")))


def _rank(found: Anomaly) -> str:
    return "" if found.rank is None else f"rank {found.rank}: "


def _longer(found: Anomaly, how: str) -> str:
    more = wording.share(_number(found, "ratio") - 1)
    lengths = f"{wording.duration(_number(found, 'before_ns'))} → {wording.duration(_number(found, 'after_ns'))}"
    cause = _CAUSES.get(found.cause or "")
    share = wording.share(_number(found, "cause_share"))
    other = "; not by input" if found.cause == "not-input" else "; not by input, nor by the training thread"
    why = f"; {share} of that is {cause}" if cause else other
    return f"steps are {more} longer {how} step {wording.count(found.step)} ({lengths}){why}"


def _slow_steps(found: Anomaly) -> str:
    every, share = wording.count(_number(found, "every")), wording.share(_number(found, "share"))
    return f"every {every} steps one is slow (seen {found.values.get('hits')} times): {share} of the time"


def _input(found: Anomaly) -> str:
    share, wait = wording.share(_number(found, "share")), wording.duration(_number(found, "wait_ns"))
    return f"{_rank(found)}input cannot keep up: {wait} of a step, {share}, is waiting for the next batch"


def _memory(found: Anomaly) -> str:
    where = "GPU memory" if found.values.get("kind") == "device" else "memory"
    rate, each = wording.rate(_number(found, "bytes_per_second")), wording.size(_number(found, "bytes_per_step"))
    held = wording.size(_number(found, "held"))
    return f"{_rank(found)}{where} grows by {each} a step ({rate}), {held} are held"


def _behind(found: Anomaly) -> str:
    if "steps" in found.values:
        return f"rank {found.rank} has made {wording.count(_number(found, 'steps'))} steps fewer than the others"
    more, share = wording.duration(_number(found, "more_ns")), wording.share(_number(found, "share"))
    what = "waits for its batches" if found.cause == "input" else "computes"
    return f"rank {found.rank} keeps the others waiting: it {what} {more} a step longer than they do, {share} of a step"


def _throttled(found: Anomaly) -> str:
    by = _HELD_BY.get(str(found.values.get("by")), "its driver")
    clocks = f"{_number(found, 'clock_mhz'):.0f} of {_number(found, 'most_mhz'):.0f} MHz"
    return f"GPU {found.values.get('device')} is held back by {by}: its clock is at {clocks}"


def _hang(found: Anomaly) -> str:
    return (
        f"no step for {wording.duration(_number(found, 'silent_ns'))}, the last one was {wording.count(found.seen_at)}"
    )


def _no_step(found: Anomaly) -> str:
    return f"no step yet, {wording.duration(_number(found, 'silent_ns'))} after the start"


def _goes_on(found: Anomaly) -> str:
    return f"steps are made again, after {wording.duration(_number(found, 'paused_ns'))}"


_ANOMALIES: Mapping[str, Callable[[Anomaly], str]] = {
    "level": lambda found: _longer(found, "since"), "drift": lambda found: _longer(found, "and growing, since about"),
    "slow-steps": _slow_steps, "input": _input, "memory": _memory, "behind": _behind, "throttled": _throttled,
    "hang": _hang, "goes-on": _goes_on, "no-step": _no_step,
}  # fmt: skip


def said(found: Anomaly) -> str:
    """An anomaly, with the step at which it was found."""
    return anomaly(found) if found.kind == "no-step" else f"step {wording.count(found.seen_at)}: {anomaly(found)}"


def hang(found: Hang) -> str:
    """Who waits for whom, in a line."""
    line, call = clean_name(found.line), clean_name(found.call)
    if found.trouble:
        return f"where it hangs is not known: {found.trouble}. {found.do}"
    if found.what == "loader":
        where = line or "no Python code"
        return f"{_ranks(found.missing, 'waits', 'wait')} for a worker of its DataLoader, which is in {where}"
    if found.what == "collective":
        in_call = "backward (gradients are reduced there)" if call == "backward" else call
        waiting = f"{_ranks(found.waiting, 'waits', 'wait')} in {in_call}"
        if found.ended:
            return f"{waiting}, in {line}; {_ranks(found.ended, 'has', 'have')} ended"
        if found.missing:
            return f"{waiting}; {_ranks(found.missing, 'is', 'are')} missing, in {line}"
        return f"{waiting}, in {line}" if line else waiting
    if not found.missing:
        return "no rank is alive"
    return f"{_ranks(found.missing, 'is', 'are')} in {line or call or 'no Python code'}"


def _ranks(ranks: Sequence[int], one: str, several: str) -> str:
    return f"rank {_listed(ranks)} {one}" if len(ranks) == 1 else f"ranks {_listed(ranks)} {several}"


def _listed(ranks: Sequence[int]) -> str:
    """`0, 2–7`."""
    pieces: list[list[int]] = []
    for rank in sorted(ranks):
        if pieces and rank == pieces[-1][-1] + 1:
            pieces[-1].append(rank)
        else:
            pieces.append([rank])
    return ", ".join(str(each[0]) if len(each) == 1 else f"{each[0]}–{each[-1]}" for each in pieces)


def window(state: WindowState) -> str:
    """What becomes of a window."""
    begin = f"window {state.number} ({_WHY.get(state.why, 'asked for')})"
    if state.state == "asked":
        return f"{begin}: recording is asked for, from step {wording.count(state.first_step)} on"
    if state.state == "recorded":
        return f"{begin}: recorded, being diagnosed"
    if state.state == "failed":
        return f"{begin}: {clean_name(state.note, 300)}"
    finding = clean_name(state.finding)
    if state.why in ANSWERS and state.rule not in ANSWERS[state.why]:
        return f"{begin}: no finding says why{'; costs most: ' * bool(finding)}{finding}"
    return f"{begin}: {finding or 'nothing was found'}"


def status(document: WatchDocument, age_ns: float) -> Iterator[str]:
    """All that is known now, in lines. `age_ns`: since it was written."""
    states = {"starting": "no step yet", "running": "running", "hangs": "HANGS", "ended": "ended"}
    steps = (
        f", step {wording.count(document.ranks[0].steps)}, {wording.duration(document.step_ns)} each"
        if document.ranks
        else ""
    )
    ranks = f", {wording.counted(len(document.ranks), 'rank')}" if len(document.ranks) > 1 else ""
    yield f"{states.get(document.state, 'of unknown state')}{steps}{ranks}; as of {wording.duration(age_ns)} ago"
    yield from (f"  {_rank_line(each)}" for each in document.ranks)
    for each in document.anomalies:
        yield f"  {said(each)}"
    if document.hang is not None:
        is_over = document.state == "ended" or (bool(document.ranks) and all(each.ended for each in document.ranks))
        yield f"  {'before it was ended: ' * is_over}{hang(document.hang)}"
    yield from (f"  {window(each)}" for each in document.windows)
    yield from (f"  {clean_name(each, 300)}" for each in document.notes)


def _rank_line(rank: RankNow) -> str:
    parts = [f"step {wording.count(rank.steps)}", wording.duration(rank.step_ns)]
    parts += [f"{wording.share(rank.wait_share)} waiting for batches", f"{wording.share(rank.host_share)} on a core"]
    parts += [wording.size(rank.held_bytes)] + (
        [f"{wording.size(rank.gpu_bytes)} on the GPU"] if rank.gpu_bytes else []
    )
    end = f"; ended: {clean_name(rank.why)}" if rank.why else "; ended" if rank.ended else ""
    return f"rank {rank.rank}: {', '.join(parts)}{end}"
