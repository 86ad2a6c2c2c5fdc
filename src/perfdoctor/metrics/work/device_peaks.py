"""What can the GPU of a place do at most, going by what was recorded and by what the user gave?"""

from __future__ import annotations

from perfdoctor.hardware.peaks import Peaks, named, peaks_of, with_user_peaks
from perfdoctor.model.place import Place


def peaks(place: Place) -> Peaks | None:
    """What the user gave counts more than what was recorded; None where neither is known."""
    user_values, info = place.timeline.user_values, place.info
    known = named(user_values.gpu)[0] if user_values.gpu else peaks_of(info.name, info.sm_count, info.memory_bytes)
    return with_user_peaks(known, user_values.peaks)
