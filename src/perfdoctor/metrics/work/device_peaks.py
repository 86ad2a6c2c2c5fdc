"""What can the GPU of a place do at most, going by what was recorded and by what the user told?"""

from __future__ import annotations

from perfdoctor.hardware.peaks import Peaks, named, peaks_of, with_told
from perfdoctor.model.place import Place


def peaks(place: Place) -> Peaks | None:
    """What the user told counts more than what was recorded; None where neither is known."""
    stated, info = place.timeline.stated, place.info
    known = named(stated.gpu)[0] if stated.gpu else peaks_of(info.name, info.sm_count, info.memory_bytes)
    return with_told(known, stated.peaks)
