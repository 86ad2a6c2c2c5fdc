"""Timelines with what the machine recorded beside them: samples of GPUs, links, NCCL's log, measured links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.readers import text_rows

SECOND_NS = 1_000_000_000
HEAT, BRAKE, HARDWARE, POWER, SET = 0x20, 0x80, 0x8, 0x4, 0x2
NOTHING_RECORDED = Timeline.build({}, ())


def beside(drawn: Timeline = NOTHING_RECORDED, **signals: Iterable[Mapping[str, object]]) -> Timeline:
    """The timeline with literal rows of these signals; what a row leaves out is unknown."""
    frames = {signal: text_rows.frame(signal, rows) for signal, rows in signals.items()}
    return replace(
        drawn,
        frames={**drawn.frames, **{signal: Frame.join([drawn[signal], rows]) for signal, rows in frames.items()}},
        recorded=drawn.recorded | set(signals),
    )


def samples(
    count: int,
    *,
    device: int = 0,
    start_ns: int = 0,
    every_ns: int = SECOND_NS,
    on_clock: bool = False,
    **given: object,
) -> list[dict[str, object]]:
    """Equal samples of one GPU, at work unless said otherwise; a list gives one value a sample."""
    usual: dict[str, object] = {"utilization_share": 1.0, "reasons": 0, "name": "samples.csv", "is_on_clock": on_clock}
    rows = []
    for number in range(count):
        own = {key: value[number] if isinstance(value, list) else value for key, value in given.items()}
        at = start_ns + number * every_ns
        rows.append({**usual, "device": device, "start_ns": at, "end_ns": at, **own})
    return rows


def fact(name: str, value: str = "", amount: float = float("nan"), **more: object) -> dict[str, object]:
    return {"name": name, "value": value, "amount": amount, "host": 0, "process": 1, "device": 0, "count": 1, **more}


def way(name: str, member: int, peer: int, **more: object) -> dict[str, object]:
    return {"name": name, "member": member, "peer": peer, "host": 0, "process": 1, "device": 0, "channels": 2, **more}


def links(*pairs: tuple[int, int, str]) -> list[dict[str, object]]:
    """Both directions of each pair of GPUs."""
    return [
        {"source": f"GPU{a}", "target": f"GPU{b}", "name": link}
        for one, other, link in pairs
        for a, b in ((one, other), (other, one))
    ]


def on_cores(
    drawn: Timeline,
    *,
    waited: float = 0.0,
    torch_threads: int = 2,
    processes: int = 1,
    process_cores: int = 8,
    **cores: float,
) -> Timeline:
    """The timeline with one sample of the processor over all of it, and what each training process counted.

    `waited`: the share of the time in which the thread that trains had no core. `cores`: numbers of `cpu_samples`.
    """
    begin, end = int(drawn.ops.start_ns[0]), int(drawn.ops.end_ns.max())
    usual = {"allowed_cores": 2, "busy_cores": 2, "program_cores": 2, "recorder_cores": 0, "waiting_threads": 0}
    row = {"start_ns": begin, "end_ns": end, "is_on_clock": True, "name": "cpu.csv", "steal_cores": 0,
           "throttled_share": 0, **usual, **cores}  # fmt: skip
    counted = [
        {"rank": 0, "process": 100 + each, "start_ns": begin, "end_ns": end, "torch_threads": torch_threads,
         "thread_delay_ns": waited * (end - begin), "threads": 4, "allowed_cores": process_cores}
        for each in range(processes)
    ]  # fmt: skip
    return beside(drawn, cpu_samples=[row], cpu_processes=counted)
