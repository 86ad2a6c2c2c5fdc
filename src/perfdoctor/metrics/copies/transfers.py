"""What do copies have in common: direction, size, stream, rate, the op that asked for them, and between which GPUs?"""

from __future__ import annotations

import json

import numpy as np

from perfdoctor.metrics.work.device_peaks import measured
from perfdoctor.model.intervals import Intervals, Nanoseconds
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Ints, Mask, Text
from perfdoctor.records.findings import Measure, Rows

#: So few copies are inputs and targets, or an image with its shape; the smallest networks have two tensors a layer.
_FEWEST_OF_A_MODEL = 6
#: Of copies that come again and again a hundredth, which nobody would notice, is taken for the start.
_WORK_BEGINS_AT = 0.01
#: Of exposed time: what fixes this share may stand for the whole.
NEARLY_ALL = 0.8
#: How many ops a table names.
_TABLE_ROWS = 5
#: Of the time from the first copy of a model to the last: reading and converting the next weight takes the rest.
_MOSTLY_COPYING = 0.5


def copies_of(place: Place, *directions: str) -> Mask:
    """One bool a row of `place.copies`: is it of one of these directions?"""
    return place.copies.text("direction").equals(*directions)


def host_memory(place: Place, *kinds: str) -> Mask:
    """One bool a row of `place.copies`: is its host side such memory?"""
    return place.copies.text("host_memory").equals(*kinds)


def before_work_begins(place: Place) -> Mask:
    """One bool a row of `place.copies`: is it a part of the start, such as the model on its way to the device?

    That is what was copied before a hundredth of the kernels' time had run: the first kernels fill and initialise.
    A model comes tensor by tensor; a few copies are a batch, of which more come later. Where steps were found, none is:
    the recording then says what comes in each of them.
    """
    kernels = place.recorded("kernels")
    if place.steps.used or not len(kernels):
        return np.zeros(len(place.copies), dtype=bool)
    ran_ns = np.cumsum(kernels.duration_ns)
    begins = int(kernels.start_ns[np.searchsorted(ran_ns, _WORK_BEGINS_AT * ran_ns[-1])])
    early = copies_of(place, "h2d") & (place.copies.end_ns <= begins)
    return early if early.sum() >= _FEWEST_OF_A_MODEL else np.zeros(early.size, dtype=bool)


def between_early_copies(place: Place) -> Intervals:
    """When the device was idle while the model was on its way to it: between copies before the work begins.

    Only where copying takes most of that time: between the inputs of a model that is there already, the host works.
    """
    rows = before_work_begins(place)
    if not rows.any():
        return Intervals.empty()
    span = Intervals.single(int(place.copies.start_ns[rows].min()), int(place.copies.end_ns[rows].max()))
    mostly = exposed_ns(place, rows) >= _MOSTLY_COPYING * span.total_ns
    return span & place.idle if mostly else Intervals.empty()


def exposed_ns(place: Place, rows: Mask) -> int:
    """How long these rows of `place.copies` ran with no kernel and no collective beside them, in ns."""
    return exposed(place, rows).total_ns


def exposed(place: Place, rows: Mask) -> Intervals:
    """When these rows of `place.copies` ran with no kernel and no collective beside them."""
    return Intervals.of(place.copies.start_ns[rows], place.copies.end_ns[rows]) & place.exposed_copies


def owner(place: Place, rows: Mask) -> str:
    """The rule that owns most of the time of these rows: pageable-copies or exposed-copies."""
    pageable = exposed_ns(place, rows & host_memory(place, "pageable"))
    return "pageable-copies" if 2 * pageable > exposed_ns(place, rows) else "exposed-copies"


def pageable_to_host_share(place: Place) -> float:
    """The share that copies to the host have of the exposed time of copies from and to pageable memory."""
    rows = host_memory(place, "pageable") & ~before_work_begins(place)
    return exposed_ns(place, rows & copies_of(place, "d2h")) / max(exposed_ns(place, rows), 1)


def compute_stream(place: Place) -> int:
    """The stream whose kernels ran longest; UNKNOWN without kernels."""
    if not len(place.kernels):
        return UNKNOWN
    streams, number = np.unique(place.kernels["stream"], return_inverse=True)
    return int(streams[np.bincount(number, weights=place.kernel_ns).argmax()])


def rates(copies: Frame) -> Floats:
    """Bytes per second of each copy; 0 where its size is not known."""
    return np.maximum(copies["bytes"], 0) / np.maximum(copies.duration_ns, 1) * 1e9


def measured_pinned(place: Place) -> float:
    """What pinned copies of the recorded machine gave with nothing beside them, in bytes/s; 0: not measured.

    The user's own value of the link counts more.
    """
    known = measured(place)
    return known.pinned_bytes_per_second if known and "host_link" not in place.timeline.user_values.peaks else 0.0


def pinned_evidence(place: Place) -> tuple[Measure, ...]:
    """The rate of `measured_pinned` as evidence; () where it was not measured."""
    rate = measured_pinned(place)
    return (Measure("pinned copies when this machine was measured", rate, "bytes_per_second"),) if rate else ()


def sharing_ns(place: Place) -> Nanoseconds:
    """How long each row of `place.copies` ran while another copy of this device crossed the link to the host, in ns."""
    return _several(place, ~copies_of(place, "d2d", "memset"))


def sharing_one_way_ns(place: Place) -> Nanoseconds:
    """How long each row of `place.copies` ran while another one crossed the link in the same direction, in ns.

    PCIe sends and receives at once: a copy in the other direction takes nothing from it.
    """
    return sum(
        (np.where(mine := copies_of(place, way), _several(place, mine), 0) for way in ("h2d", "d2h")),
        np.zeros(len(place.copies), dtype=np.int64),
    )


def _several(place: Place, crossing: Mask) -> Nanoseconds:
    """How long each row of `place.copies` ran while several of these copies did."""
    copies = place.copies
    start, end = copies.start_ns[crossing], copies.end_ns[crossing]
    moments, changes = np.concatenate((start, end)), np.repeat((1, -1), start.size)
    order = np.lexsort((changes, moments))
    moments, running = moments[order], np.cumsum(changes[order])
    several = running[:-1] > 1
    return Intervals.of(moments[:-1][several], moments[1:][several]).overlap_ns(copies.start_ns, copies.end_ns)


def steps_with(place: Place, rows: Mask) -> int:
    """The number of steps used in which one of these copies began."""
    bounds = place.steps.used_bounds
    return int((np.histogram(place.copies.start_ns[rows], bins=bounds)[0] > 0).sum()) if bounds.size > 1 else 0


def asked_by(place: Place) -> Text:
    """For each row of `place.copies` the outermost op on the host that asked for it; "" where none was recorded."""
    names = place.timeline.ops.name
    op = launches_of(place, "copies").outermost("ops")
    codes = np.where(op != UNKNOWN, names.codes[op] + 1, 0) if len(names) else np.zeros(op.size)
    return Text(codes.astype(np.int32), ["", *names.values])


def by_op(place: Place, rows: Mask, label: str) -> Rows:
    """These copies by the op that asked for them, exposed longest first, a step each."""
    copies, names = place.copies, asked_by(place)
    ns = place.exposed_copies.overlap_ns(copies.start_ns, copies.end_ns)
    size = sizes(place)
    found = []
    for code in np.unique(names.codes[rows]).tolist():
        mine = rows & (names.codes == code)
        name, units = names.values[code] or "not recorded", place.units
        found.append((name, int(mine.sum()) / units, int(ns[mine].sum()) // units, int(size[mine].sum()) // units))
    found.sort(key=lambda row: -row[2])
    return Rows(
        label, ("asked by", "count", "exposed", "bytes"), ("text", "count", "ns", "bytes"), tuple(found[:_TABLE_ROWS])
    )


def bytes_of(place: Place, rows: Mask) -> int:
    """The bytes of these rows of `place.copies` together, without those of unknown size."""
    return int(sizes(place)[rows].sum())


def sizes(place: Place) -> Ints:
    """Bytes of each row of `place.copies`; 0 where unknown."""
    return np.maximum(place.copies["bytes"], 0)


def stood_ns(run: Run, place: Place) -> int:
    """Ns of the window in which this device stood still for its own copies to other GPUs, or for another device's.

    Such a copy is recorded on the device in whose stream it runs. The other one waits as well, and has no row of it.
    """
    copied = Intervals.empty()
    for other in run.places:
        if other.rank == place.rank and other.device != place.device:
            rows = copies_of(other, "p2p")
            copied = copied | Intervals.of(other.copies.start_ns[rows], other.copies.end_ns[rows])
    return exposed_ns(place, copies_of(place, "p2p")) + (copied & place.idle).total_ns


#: Types of elements that could be half as wide: floats of 32 bits as bf16, those of 64 bits as fp32, integers of 64
#: bits as int32 up to 2³¹; images of one byte, flags, 16-bit floats and 32-bit integers could not.
_HALVES = frozenset({"float", "float32", "double", "float64", "long int", "long", "int64"})


def halvable(place: Place) -> tuple[Mask, Mask]:
    """For each row of `place.copies`: can its elements be half as wide? And is it known whether they can?

    By the types of the op that asked for the copy (torch.profiler with record_shapes). Of `aten::copy_` the target's
    comes first, and is what crosses the link: torch converts the source where it lies (ATen/native/cuda/Copy.cu).
    """
    op, types = launches_of(place, "copies").enclosing("ops"), place.timeline.ops.text("input_types")
    if not len(types):
        nothing: Mask = np.zeros(op.size, dtype=bool)
        return nothing, nothing
    first = types.mapped(_first_type).take(np.maximum(op, 0))
    asked = op != UNKNOWN
    can: Mask = asked & first.where(lambda name: name in _HALVES)
    known: Mask = asked & ~first.equals("")
    return can, known


def _first_type(types: str) -> str:
    """The type of an op's first input in small letters; "" where it is not recorded."""
    try:
        listed = json.loads(types)
    except ValueError:
        return ""
    return str(listed[0]).casefold() if isinstance(listed, list) and listed else ""
