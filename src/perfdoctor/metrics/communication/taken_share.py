"""How much of a GPU do collectives take from compute that runs beside them?

NCCL and RCCL run one block of threads for each channel, and a block keeps its SM for as long as the collective lasts
(NCCL_MIN_CTAS, NCCL_MAX_CTAS in NCCL's documentation). Compute beside it has the other SMs: of the time beside, blocks
÷ SMs is lost. Memory and power are shared as well. In trainings on A100, H100, MI210 and MI250 compute takes 18.9 %
longer beside communication on the mean (Lee et al., Characterizing Compute-Communication Overlap in GPU-Accelerated
Distributed Deep Learning, 2025, arXiv 2507.03114): beside communication, 1 - 1 / 1.189 of the time is lost.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from perfdoctor.model.place import Place
from perfdoctor.model.run import Run

#: Lost on the mean of those trainings.
_USUAL = 1 - 1 / 1.189


class Taken(Struct, frozen=True):
    """Of the time in which communication runs beside compute, the likely share in which compute gets nothing done.

    At the least nothing, where compute leaves SMs free. `source`: the recording, or a table of published trainings.
    """

    likely: float
    source: Literal["recording", "table"] = "recording"

    def won(self, hidden_ns: float) -> float:
        """The ns that are likely won by hiding `hidden_ns` of communication."""
        return hidden_ns * (1 - self.likely)


def taken(run: Run) -> Taken:
    """The share that collectives take, a mean over all places; 0 without a GPU, where they run on processor cores."""
    shares = [_sm_share(place) for place in run.places if place.device is not None]
    if not shares:
        return Taken(0.0)
    known = [share for share in shares if not np.isnan(share)]
    return Taken(float(np.mean([*known, *[_USUAL] * (len(shares) - len(known))])), "recording" if known else "table")


def _sm_share(place: Place) -> float:
    """Blocks of collectives over SMs, weighted by their time; NaN where the recording lacks one of them."""
    frame, sms = place.collectives, place.info.sm_count
    known = frame["blocks"] > 0
    if not sms or not known.any():
        return float("nan")
    shares = np.minimum(frame["blocks"][known] / sms, 1.0)
    return float(np.average(shares, weights=np.maximum(frame.duration_ns[known], 1)))
