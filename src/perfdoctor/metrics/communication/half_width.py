"""What would be saved if gradients and parameters were sent in 16 bits instead of 32?

The transfer of large messages takes half as long. Where no framework packs gradients into messages of another type
anyway (FSDP, DeepSpeed and Megatron do), they are converted, divided and converted back: 4 + 2, 2 + 2 and 2 + 4 bytes
of memory traffic for an element of 4 bytes (torch.distributed.algorithms.ddp_comm_hooks.default_hooks,
bf16_compress_hook).
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.communication.collectives import exposed_rows_ns, is_full_precision, transfer_share
from perfdoctor.metrics.communication.hideable import purposes
from perfdoctor.metrics.program import facts
from perfdoctor.metrics.work.device_peaks import attained
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.vocabulary.names import nccl as nccl_names

#: Half of the bytes take half of the time.
_HALF = 0.5
#: Memory traffic of the conversions, for each byte of a 32-bit gradient: 16 bytes for 4.
_TRAFFIC = 4.0
_PACKS_ANYWAY = frozenset({"fsdp", "deepspeed", "megatron"})


def saved_ns(run: Run, place: Place) -> tuple[float, float]:
    """How much transfer that compute waits for is saved, in ns of the window: likely, and at most.

    Likely is that of what is known to have 32 bits, less the conversions; at most, what is of unknown type has, too.
    """
    rows, transfer = purposes(run, place), transfer_share(run)
    carried, wide = rows.gradients | rows.parameters, is_full_precision(place.collectives)
    likely_ns = _HALF * transfer * exposed_rows_ns(place, carried & wide)
    most_ns = _HALF * transfer * exposed_rows_ns(place, carried & ~_is_narrow(place))
    return max(likely_ns - conversions_ns(run, place, rows.gradients & wide), 0.0), max(most_ns, likely_ns)


def conversions_ns(run: Run, place: Place, gradients: Mask) -> float:
    """Device time in ns to convert the elements of these rows and back; 0 where sizes or memory are unknown."""
    memory = attained(place)
    if facts(run) & _PACKS_ANYWAY or place.device is None or memory is None or not memory.memory_bytes_per_second:
        return 0.0
    size = float(np.maximum(place.collectives["bytes"][gradients], 0).sum())
    return _TRAFFIC * size / memory.memory_bytes_per_second * 1e9


def _is_narrow(place: Place) -> Mask:
    """One bool a row: is it known to have 16 bits or fewer? By the recorded type, else by the kernel's name."""
    types, by_name = place.collectives.text("data_type"), place.collectives.name.mapped(nccl_names.data_type)
    narrow: Mask = types.matches(nccl_names.HALF_PRECISION)
    return narrow | (types.equals("") & by_name.matches(nccl_names.HALF_PRECISION))
