"""exposed-communication: collectives that keep the compute streams waiting."""

from __future__ import annotations

import pytest
from builders import draw, draw_steps, findings, of_step, only_finding, summary, timeline
from collective_builders import MIB, described

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import merge
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000
#: Compute takes so many times as long beside communication, on the mean of published trainings.
BESIDE = 1.189


def step(hidden: int, exposed: int, *, of: int = 40, **more):
    """Compute, and a collective that begins `hidden` units before its end and lasts `exposed` units longer."""
    busy = of - exposed
    return draw(
        **{
            "kernels": "#" * busy + " " * exposed,
            "nccl": " " * (busy - hidden) + "=" * (hidden + exposed),
            "launched_us_before": 50,
            "repeat": 6,
            "unit_us": 1000,
            **more,
        }
    )


def test_it_fires_where_collectives_run_while_no_kernel_does():
    finding = only_finding("exposed-communication", step(10, 10))
    # 20 ms of communication, 10 of them beside compute
    shown = {**of_step("exposed", 10.0, 40.0), "hidden_percent": 50.0, "ranks": 1, "job_ranks": 1}
    assert finding.values == {**finding.values, **shown}
    # of one message cut in two the second half stays, as long as it is exposed now; half of the bytes would win 5
    assert finding.saving_ns_per_step == Saving(2.5 * MS, 5 * MS, 10 * MS)
    assert "10.0 ms of a 40.0 ms step (25 %) are collectives" in summary(finding)


def test_with_one_rank_it_says_that_waiting_cannot_be_distinguished_from_transfer():
    finding = only_finding("exposed-communication", step(0, 10))
    assert (finding.situation, finding.confidence, finding.doubt) == ("one-rank", "medium", "missing")
    assert "Only one rank was recorded" in summary(finding)


def test_with_several_ranks_it_is_sure():
    finding = only_finding("exposed-communication", merge([step(0, 10, rank=0), step(0, 10, rank=1)]))
    assert (finding.situation, finding.confidence) == ("", "high")


def test_only_the_doubt_that_there_is_is_named():
    mostly_stays = described(merge([step(0, 36, rank=rank) for rank in (0, 1)]), data_type="BFloat16")
    (advice,) = diagnose(mostly_stays, [load_rules()["exposed-communication"]]).findings
    assert "; compute hides less than half of it" in advice.confidence_because
    assert "cores" not in advice.confidence_because
    assert "every rank" not in advice.confidence_because


def test_where_ranks_are_missing_their_waiting_is_not_transfer():
    """Two of four ranks, in collectives of one size that last 10 ms and, in every other step, 4: they take no more."""
    both = [step(0, 10, rank=rank, world_size=4, repeat=8) for rank in (0, 1)]
    long, short = "#" * 30 + " " * 10, "#" * 36 + " " * 4
    nccl = (" " * 30 + "=" * 10 + " " * 36 + "=" * 4) * 4
    uneven = [draw(kernels=(long + short) * 4, nccl=nccl, rank=rank, world_size=4, unit_us=1000) for rank in (0, 1)]
    finding = only_finding("exposed-communication", merge(both))
    assert finding.situation == "some-ranks"
    assert "Only 2 of 4 ranks were recorded, so it is not known how much of this is transfer" in summary(finding)
    alike, different = (
        only_finding("exposed-communication", described(merge(each), bytes=MIB, group_name="0")).saving_ns_per_step
        for each in (both, uneven)
    )
    assert alike.likely == 10 / 2 * MS
    # four stretches of 10 and four of 4 ms: half of the bytes; without steps all count
    assert different.likely == pytest.approx(4 * 14 / 2 * MS, rel=0.01)
    assert different.high == pytest.approx(4 * 14 * MS, rel=0.01)


def test_what_compute_cannot_hide_is_won_by_sending_less():
    """Hardly any compute: two thirds of 4 ms are a backward pass, which hides half of so much; half of 36 are 18."""
    saving = only_finding("exposed-communication", step(0, 36)).saving_ns_per_step
    assert saving == Saving(9 * MS, 18 * MS, 36 * MS)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("exposed-communication", step(10, 1, of=40)) == []  # 2.5 %
    assert len(findings("exposed-communication", step(10, 1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_compute_hides_all_of_a_large_communication():
    picture = draw(kernels="#" * 40, nccl=" ====" * 8, launched_us_before=50, repeat=6)
    run = prepare(picture)
    assert run.share(lambda place: place.communication.total_ns) == 0.8
    assert findings("exposed-communication", run) == []


def test_it_stays_silent_where_all_of_it_is_waiting_for_a_late_rank():
    """Rank 0 stands in the collective for 20 ms, but once rank 1 has come it takes 1 ms: that is rank-skew's."""
    early = step(0, 20, rank=0)
    late = draw_steps(kernels="#" * 39 + " ", nccl=" " * 39 + "=", rank=1)
    assert findings("exposed-communication", merge([early, late]), min_share_of_step=0.03) == []


def test_waiting_for_a_late_rank_is_taken_off():
    early = step(0, 20, rank=0)
    late = draw_steps(kernels="#" * 30 + " " * 10, nccl=" " * 30 + "=" * 10, rank=1)
    finding = only_finding("exposed-communication", merge([early, late]))
    # a mean of 15 ms a rank is exposed; a third of all time in collectives (10 of 30) is waiting
    assert finding.values["exposed_ms"] == pytest.approx(10.0)


def test_its_table_says_what_collectives_are_for_and_what_of_them_is_exposed():
    picture = draw_steps(
        kernels="##########      ##  ",
        nccl="          ======aa-- ",
    )
    finding = only_finding("exposed-communication", picture)
    table = finding.evidence[2]
    assert table.columns == ("what", "count", "time", "exposed")  # neither sizes nor other ranks are known
    assert table.rows == (
        ("all-reduces of data parallelism", 2.0, 8 * MS, 8 * MS),
        ("all-gathers", 1.0, 2 * MS, 0),
    )
    assert finding.values["mostly"] == "all-reduces of data parallelism"


def test_only_what_compute_waited_for_is_promised():
    """The host is late: compute goes on in the middle of the collective, so a shorter one would win nothing."""
    host_bound = draw_steps(
        kernels="#" * 10 + " " * 10 + "#" * 20,
        nccl=" " * 10 + "=" * 25 + " " * 5,
    )
    finding = only_finding("exposed-communication", host_bound)
    assert finding.values["exposed_ms"] == 10.0
    assert finding.saving_ns_per_step.likely == 0


def test_it_tells_the_bandwidth_of_large_messages_where_all_ranks_were_recorded():
    ranks = [described(step(0, 10, rank=n, device=n), bytes=100_000_000, group_size=2) for n in (0, 1)]
    (table,) = only_finding("exposed-communication", merge(ranks)).evidence[3:]
    # 100 MB in 10 ms; two ranks load the link once
    assert table.rows == (("all_reduce", 2, 100_000_000, pytest.approx(1e10)),)
    assert len(only_finding("exposed-communication", ranks[0]).evidence) == 3


def saving(picture, **columns):
    return only_finding("exposed-communication", described(picture, **columns)).saving_ns_per_step


def test_of_gradients_in_16_bits_no_halved_bytes_are_predicted():
    assert saving(step(0, 36), data_type="Float").likely == 36 / 2 * MS
    assert saving(step(0, 36), data_type="BFloat16").likely == int(
        4 * 0.67 / 2 * MS / BESIDE
    )  # what a backward pass hides


def test_blocks_of_the_collectives_take_sms_from_compute():
    """27 blocks on 108 SMs: of 5 ms that are hidden, compute loses a quarter."""
    picture = step(0, 10, sm_count=108)
    won = saving(picture, data_type="BFloat16", blocks=27)
    assert won.likely == pytest.approx(5 * 0.75 * MS, rel=1e-6)
    assert saving(picture, data_type="BFloat16").likely == pytest.approx(5 * MS / BESIDE, rel=1e-6)
    assert won.low < won.likely < won.high


def test_it_predicts_no_less_than_its_symptoms():
    """Links at a tenth of their rate: with the whole rate more is won than compute could hide."""
    ranks = [
        described(step(0, 36, rank=n, device=n, gpu="NVIDIA A100-SXM4-80GB"), bytes=100_000_000, group_size=2, data_type="BFloat16")
        for n in (0, 1)
    ]  # fmt: skip
    found = {each.rule: each for each in diagnose(merge(ranks), list(load_rules().values())).findings}
    cause = found["exposed-communication"]
    assert "slow-links" in [each.rule for each in cause.symptoms]
    for symptom in cause.symptoms:
        assert symptom.saving_ns_per_step.likely <= cause.saving_ns_per_step.likely


def test_what_the_links_cannot_keep_up_with_is_sent_less_often_with_ddp():
    """36 ms of gradients and a backward pass of 2.7: accumulated over two batches half of them are left."""
    host = {"host": ["l" + " " * 39, "n" * 40], "legend": {"n": ("ops", "DistributedDataParallel.forward")}}
    assert saving(step(0, 36, **host), data_type="BFloat16").likely == 18 * MS
    assert saving(step(0, 10, **host), data_type="BFloat16").likely < 5 * MS


def test_of_several_messages_the_last_one_stays():
    one = draw(kernels="#" * 30 + " " * 10, nccl=" " * 30 + "=" * 10, unit_us=1000, repeat=6, launched_us_before=50)
    four = draw(kernels="#" * 30 + " " * 8, nccl=" " * 30 + "==--==--", unit_us=1000, repeat=6, launched_us_before=50)
    assert saving(one, data_type="BFloat16").likely == pytest.approx(5 * MS / BESIDE, rel=0.01)
    assert saving(four, data_type="BFloat16").likely == pytest.approx(6 * MS / BESIDE, rel=0.01)


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("DistributedDataParallel.forward", "bucket_cap_mb", "fully_shard"),
        ("FSDP::pre_forward", "reshard_after_forward", "DistributedDataParallel("),
        ("FullyShardedDataParallel.forward", "SHARD_GRAD_OP", "DistributedDataParallel("),
        ("DeepSpeedEngine.forward", "overlap_comm", "register_post_accumulate_grad_hook"),
        ("megatron/core/parallel_state.py(1): f", "--overlap-grad-reduce", "register_post_accumulate_grad_hook"),
        ("RedistributeBackward", "_micro_pipeline_tp", "register_post_accumulate_grad_hook"),
        ("aten::add", "register_post_accumulate_grad_hook", "fully_shard"),
    ],
)
def test_fixes_are_those_of_the_recorded_framework(name, has, has_not):
    host = {"host": ["l" + " " * 39, "n" * 40], "legend": {"n": ("ops", name)}}
    found = {each.rule: each for each in diagnose(step(0, 10, **host), list(load_rules().values())).findings}
    code = "\n".join(fix.how for fix in found["exposed-communication"].fixes)
    assert has in code
    assert has_not not in code
    assert "NCCL_DEBUG" not in code  # one rank was recorded: its links are not in question yet


def test_a_rank_of_processors_may_have_no_part_in_the_collectives_of_the_others():
    rows = {"ops": [], "ranges": []}
    for number in range(5):
        for rank in range(3):
            own = {"rank": rank, "process": rank, "thread": 1}
            at = (1 + 20 * number) * MS
            rows["ops"].append({**own, "start_ns": at, "end_ns": at + (5 if rank else 20) * MS, "name": "aten::mm"})
            rows["ranges"].append({**own, "start_ns": at, "end_ns": at + 20 * MS, "name": f"ProfilerStep#{number}"})
            if rank:
                sent = {"start_ns": at + 5 * MS, "end_ns": at + 20 * MS, "name": "gloo:all_reduce"}
                rows["ranges"].append({**own, **sent, "thread": 2})
    assert only_finding("exposed-communication", timeline(**rows, world_size=3)).saving_ns_per_step.high > 0
