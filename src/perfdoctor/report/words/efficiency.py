"""How much of the GPU's peak was used, and what did a machine give when it was measured, each in one line?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean

if TYPE_CHECKING:
    from perfdoctor.hardware.measured import MeasuredRates
    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.work_done import Efficiency
    from perfdoctor.vocabulary.basis import Basis

_NAME_LIMIT = 48
#: From this share of the matmul time on, the counted FLOP are complete.
_WHOLE = 0.995
#: Below this share, the counted FLOP do not represent the step.
_ENOUGH = 0.5
_BYTES = {"memory": "memory", "host_link": "pinned copies"}
_LATENCIES = {"launch": "a launch takes", "kernel_floor": "a kernel at least", "all_reduce_latency": "an all-reduce"}
_TO_RECORD = "record shapes with `perfdoctor run`, or torch.profiler and record_shapes=True; or "
_GIVEN = "give --parameters and --tokens-per-step"


def line(diagnosis: Diagnosis) -> str:
    """`MFU 41 % of 989 TFLOP/s (bf16, dense; NVIDIA H100 SXM) …`, or what is missing; "" where nothing is known."""
    efficiency = diagnosis.efficiency
    if efficiency is None:
        return ""
    if efficiency.on_gpu and efficiency.mfu is None and efficiency.known_share < _ENOUGH:
        return _use(efficiency, diagnosis.framework)
    parts = [_use(efficiency, diagnosis.framework), _work(efficiency, diagnosis.basis), _items(efficiency)]
    return " ".join(filter(None, parts))


def _use(efficiency: Efficiency, framework: str) -> str:
    if efficiency.mfu is None and efficiency.hfu is None:
        return _missing(efficiency, framework)
    is_given = efficiency.model_from == "parameters"
    least = "" if is_given or efficiency.known_share >= _WHOLE else "at least "
    numbers = f"MFU {least}{wording.fine_share(efficiency.mfu)}" if efficiency.mfu is not None else ""
    if efficiency.hfu is not None and efficiency.hfu != efficiency.mfu:
        least = "" if efficiency.known_share >= _WHOLE else "at least "
        numbers += f", HFU {least}{wording.fine_share(efficiency.hfu)}"
    peak = wording.flop_rate(efficiency.peak_flop_per_second or 0)
    gpu = clean(efficiency.gpu, _NAME_LIMIT)
    of_peak = f"{numbers} of {peak} ({efficiency.data_type}, dense{f'; {gpu}' if gpu else ''})"
    if max(efficiency.mfu or 0, efficiency.hfu or 0) > 1:
        return f"{of_peak}: impossible, so the GPU, its peak, --parameters or --tokens-per-step is wrong."
    return f"{of_peak}."


def _missing(efficiency: Efficiency, framework: str) -> str:
    """Why the MFU is unknown; "" for a program that need not be a model."""
    if not efficiency.on_gpu or framework in ("cuda", "triton"):
        return ""
    if "steps" in efficiency.lacks:
        return "MFU is unknown: --tokens-per-step needs steps, and none were found."
    if "shapes" in efficiency.lacks and efficiency.flop_per_step:
        known = wording.share(efficiency.known_share)
        return f"MFU is unknown: the FLOP of only {known} of the matmul time follow from the recorded shapes; {_GIVEN}."
    if "shapes" in efficiency.lacks:
        return f"MFU is unknown: {_to_record(framework)}."
    if "data_type" in efficiency.lacks:
        return "MFU is unknown: the data type of most matmuls was not recorded."
    name = clean(efficiency.gpu, _NAME_LIMIT)
    of_type = efficiency.data_type or "bf16"
    if "type_peak" in efficiency.lacks:
        return f"MFU is unknown: no {of_type} peak of {name or 'this GPU'} is known; give it with --peak {of_type}=…T."
    why = f"the peaks of {name!r} are not known" if name else "the recording does not name the GPU"
    return f"MFU is unknown: {why}; give --gpu NAME or --peak {of_type}=…T."


def _to_record(framework: str) -> str:
    return f"{'' if framework == 'jax' else _TO_RECORD}{_GIVEN}"


def _work(efficiency: Efficiency, basis: Basis) -> str:
    if not efficiency.flop_per_step:
        return ""
    said = f"{wording.flop(efficiency.flop_per_step)} {basis.each.strip() or 'in the recording'}"
    if efficiency.on_gpu:
        said += f", from the shapes of {wording.share(efficiency.known_share)} of the matmul time"
    if efficiency.recomputed_flop_per_step:
        again = wording.share_of(efficiency.recomputed_flop_per_step, efficiency.flop_per_step)
        said += f"; {again} of it is recomputed forward work"
    return f"{said}."


def _items(efficiency: Efficiency) -> str:
    if not efficiency.items_per_second:
        return ""
    what = "tokens" if efficiency.items == "tokens" else "loss targets"
    each = " per GPU" if efficiency.on_gpu else ""
    return f"{wording.count(float(round(efficiency.items_per_second)))} {what} a second{each}."


def measured(rates: MeasuredRates) -> str:
    """`bf16 712 TFLOP/s, memory 4.10 TB/s, a launch takes 2.10 µs (2026-11-22)`, and how much failed."""
    parts = [
        f"{_BYTES[name]} {wording.rate(rate)}" if name in _BYTES else f"{name} {wording.flop_rate(rate)}"
        for name, rate in rates.as_peaks().items()
    ]
    parts += [f"{words} {wording.duration(rates.one(what))}" for what, words in _LATENCIES.items() if rates.one(what)]
    failed = f"; {wording.counted(len(rates.failed), 'part')} failed" if rates.failed else ""
    return f"{', '.join(parts) or 'nothing steady'} ({rates.measured_on}{failed})"
