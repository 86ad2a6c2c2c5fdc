"""late-gathers: sharded parameters are gathered only when the compute that needs them waits."""

from __future__ import annotations

from builders import draw_steps, findings, only_finding
from collective_builders import MS, under

from perfdoctor.records.savings import Saving


def step(*, gathers: int = 4, kernels: str = "", nccl: str = "", scatter: str = "rr rr "):
    return draw_steps(
        kernels=kernels or "  ####" * gathers + " " * len(scatter),
        nccl=nccl or "aa    " * gathers + scatter,
    )


def test_it_fires_where_each_layer_waits_for_its_own_parameters():
    finding = only_finding("late-gathers", step())
    assert finding.values["late_per_step"] == finding.values["gathers_per_step"] == 4
    # four gathers of 2 ms; the first has nothing before it that could hide it; 16 ms of compute are free,
    # and take 18.9 % longer beside them
    assert finding.values["exposed_ms"] == 8
    assert finding.saving_ns_per_step == Saving(int(6 * MS / 1.189) // 2, int(6 * MS / 1.189), 8 * MS)


def test_no_more_is_promised_than_compute_can_hide():
    thin = step(kernels="    #" * 4 + "      ", nccl="aaaa " * 4 + "rr rr ")
    # 16 ms of gathers, of which 12 could be asked for earlier, and 4 ms of compute
    assert only_finding("late-gathers", thin).saving_ns_per_step.high == 4 * MS


def test_it_stays_silent_just_below_the_threshold():
    assert findings("late-gathers", step(gathers=3)) == []
    assert len(findings("late-gathers", step(gathers=4))) == 1


def test_it_stays_silent_where_gathers_begin_beside_compute_and_are_still_too_slow():
    """Each is asked for while the layer before computes: the links are the limit."""
    slow = step(kernels="####  " * 4 + "      ", nccl="  aaaa" * 4 + "rr rr ")
    assert findings("late-gathers", slow) == []


def test_it_stays_silent_where_gathers_stand_in_line_behind_each_other():
    """The next gather was asked for while the one before travelled; compute goes on at the same moment."""
    in_line = step(kernels="      #" + "     #" * 3 + "      ", nccl="  aaaa" + "aaaaaa" * 3 + " rr rr ")
    assert findings("late-gathers", in_line) == []


def test_it_fires_where_gathers_stand_behind_gradients_that_waited_for_compute_as_well():
    """No prefetching in the backward pass: the gradients of a layer go out, then the next layer is asked for."""
    behind = step(kernels="    ####" * 4 + "   ", nccl="rraa    " * 4 + "rr ")
    finding = only_finding("late-gathers", behind)
    assert finding.values["late_per_step"] == 4
    assert finding.values["exposed_ms"] == 8


def test_it_stays_silent_where_gathers_stand_behind_gradients_that_left_beside_compute():
    """The next layer had been asked for in time, and computes while the gradients of the one before go out."""
    in_time = step(kernels="####   " * 4 + "   ", nccl="   rraa" * 4 + "rr ")
    assert findings("late-gathers", in_time) == []


def test_it_stays_silent_where_nothing_is_scattered():
    """Tensor parallelism or metrics gather, too."""
    assert findings("late-gathers", step(scatter="")) == []


def test_it_is_a_symptom_of_exposed_communication():
    assert "late-gathers" in under(step(), "exposed-communication")
