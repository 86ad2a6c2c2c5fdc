"""Which sampled line is named first, and whose, where ranks wait for a late one?"""

from __future__ import annotations

import gzip
import json

import pytest
from builders import draw, only_finding

from perfdoctor.diagnosis.lines import code_lines, facts_of
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.host.sampled_lines import of_training
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import merge
from perfdoctor.readers import sampled_stacks
from perfdoctor.report.words.code_lines import weight
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000
#: Where drawn timelines begin.
BEGIN = 10_000 * MS


def with_samples(timeline, folder, by_rank):
    """Each ms one sample of each of these ranks, of the line or stack that its text of letters has there."""
    files = []
    for rank, (letters, names) in by_rank.items():
        file = folder / f"torch-{rank}.json.gz"
        stacks = {letter: [each] if isinstance(each, str) else each for letter, each in names.items()}
        frames = sorted({frame for stack in stacks.values() for frame in stack})
        letters_of = sorted(stacks)
        count = len(letters)
        content = {
            "format": 1, "hertz": 1000, "pid": 10 + rank, "of": 10 + rank, "is_worker": False, "frames": frames,
            "stacks": [[frames.index(frame) for frame in stacks[letter]] for letter in letters_of], "threads": [{"tid": 10 + rank, "name": ""}],
            "source": {}, "samples": {
                "thread": [0] * count, "stack": [letters_of.index(letter) for letter in letters],
                "start_unix_ns": [MS * at for at in range(count)], "end_unix_ns": [MS * (at + 1) for at in range(count)],
                "count": [1] * count,
            },
        }  # fmt: skip
        file.write_bytes(gzip.compress(json.dumps(content).encode()))
        files.append(file)
    return sampled_stacks.join(timeline, files, {10 + rank: rank for rank in by_rank}, -BEGIN)


def ranks():
    """The third rank collects garbage for 16 of 40 ms, and the others wait for it in the step's collective."""
    early = [
        draw(kernels="#" * 20 + " " * 20, nccl=" " * 20 + "=" * 20, rank=n, repeat=6, launched_us_before=50, unit_us=1000)
        for n in (0, 1)
    ]  # fmt: skip
    late = draw(
        kernels="#" * 20 + " " * 20, nccl=" " * 36 + "=" * 4, host=[" " * 20 + "g" * 16 + " " * 4], rank=2, repeat=6,
        launched_us_before=50, unit_us=1000,
    )  # fmt: skip
    return merge([*early, late])


def test_ranks_that_wait_for_a_late_one_name_the_line_that_makes_it_late(tmp_path):
    names = {"t": "train.py(9): step", "w": "train.py(12): average", "g": "log.py(5): collect"}
    step = {0: "t" * 20 + "w" * 20, 1: "t" * 20 + "w" * 20, 2: "t" * 20 + "g" * 16 + "w" * 4}
    drawn = with_samples(ranks(), tmp_path, {rank: (text * 6, names) for rank, text in step.items()})
    run = prepare(drawn)
    finding = only_finding("rank-skew", run)
    assert finding.values["late_rank"] == 2
    line, *others = code_lines(load_rules()["rank-skew"], finding, run)
    assert (line.file, line.line, line.function) == ("log.py", 5, "collect")
    assert line.share >= 0.9
    assert all(each.share <= 0.1 for each in others)


@pytest.mark.parametrize(
    ("samples", "first"),
    [
        # A `main` that calls everything: ten samples in five lines, none of which is what costs.
        ("1122334455" + "h" * 8, "log.py(5): histogram"),
        # A function that is slow in five lines costs more than the costliest single line.
        ("1111222233334444" + "h" * 6, "train.py(1): main"),
        # Two lines alike: the one whose function costs more.
        ("11222" + "hhh", "train.py(2): main"),
    ],
)
def test_the_line_that_is_named_first_is_the_costliest_unless_a_functions_lines_cost_twice_as_much(
    tmp_path, samples, first
):
    names = {"h": "log.py(5): histogram", **{str(n): f"train.py({n}): main" for n in range(1, 6)}}
    drawn = with_samples(draw(kernels="####", repeat=6), tmp_path, {0: (samples, names)})
    named = of_training(drawn, [(0, Intervals.single(BEGIN, BEGIN + 1000 * MS))])
    assert named[0].name == first
    assert sum(line.samples for line in named) == len(samples)


TORCH = "lib/python3.11/site-packages/torch/"
FIT = ["train.py(30): main", "site-packages/lightning/trainer.py(9): fit"]
#: `w`, `u` and `b` are outside of the time in which the late rank is late.
IN_LOOP = {
    "w": FIT, "l": [*FIT, "site-packages/lightning/loops.py(7): run"], "o": [*FIT, "data.py(5): collate"],
    "u": [*FIT, TORCH + "optim/adam.py(3): step"], "b": [*FIT, TORCH + "autograd/graph.py(3): _engine_run_backward"],
}  # fmt: skip


def lines_of_late_rank(folder, names, *late):
    """What is named of the late rank: in each of six steps it is late for 16 ms, in which it has the stacks `late`."""
    texts = {0: "w" * 240, 1: "w" * 240, 2: "".join("u" * 20 + each + "b" * 4 for each in late)}
    run = prepare(with_samples(ranks(), folder, {rank: (text, names) for rank, text in texts.items()}))
    return code_lines(load_rules()["rank-skew"], only_finding("rank-skew", run), run)


def test_a_line_that_runs_a_librarys_loop_gives_way_to_a_line_of_ones_own_inside(tmp_path):
    (line,) = lines_of_late_rank(tmp_path, IN_LOOP, *["l" * 12 + "o" * 4] * 6)
    assert (line.file, line.line, line.is_loop) == ("data.py", 5, False)
    assert line.share == pytest.approx(0.25, abs=0.05)


def test_where_no_line_inside_a_librarys_loop_is_ones_own_that_is_said(tmp_path):
    (line,) = lines_of_late_rank(tmp_path, IN_LOOP, *["l" * 16] * 6)
    assert (line.file, line.line, line.is_loop) == ("train.py", 30, True)
    assert weight(line) == "it runs a library's loop: 100 % of that time pass in code that is not yours"


def test_a_line_that_takes_nearly_all_of_the_time_runs_no_loop(tmp_path):
    """All samples show it, and none shows a part of a step inside it."""
    (line,) = lines_of_late_rank(tmp_path, dict.fromkeys(IN_LOOP, IN_LOOP["l"]), *["l" * 16] * 6)
    assert (line.file, line.line, line.is_loop) == ("train.py", 30, False)


@pytest.mark.parametrize(("samples", "is_named"), [(4, False), (5, True)])
def test_no_line_is_named_that_fewer_than_five_samples_show(tmp_path, samples, is_named):
    names = {**dict.fromkeys("wub", "train.py(1): step"), "l": "late.py(2): wait", "c": "rare.py(3): log"}
    late = ["l" * 16] * 6
    late[3] = ("llll" + "c" * samples).ljust(16, "l")
    named = lines_of_late_rank(tmp_path, names, *late)
    assert [line.file for line in named] == ["late.py", *["rare.py"] * is_named]


@pytest.mark.parametrize(("more", "first"), [((), "data.py(13): load"), ((30,), "train.py(30): fetch")])
def test_a_training_that_waits_for_a_thread_of_its_own_names_that_ones_line(tmp_path, more, first):
    """Of two other threads, `more`, none is known to be the one that is waited for."""
    frames = ["train.py(30): fetch", "lib/python3.11/queue.py(171): Queue.get", "threading.py(327): Condition.wait"]
    frames += ["train.py(9): step", "data.py(13): load", "monitor.py(5): watch"]
    threads = [10, 20, *more]
    content = {
        "format": 1, "hertz": 1000, "pid": 10, "of": 10, "is_worker": False, "frames": frames,
        "stacks": [[0, 1, 2], [3], [4], [5]], "threads": [{"tid": tid, "name": ""} for tid in threads],
        "source": {}, "samples": {
            # The main thread waits for 8 ms, and computes for 2; meanwhile the other thread loads.
            "thread": [0, 0, *range(1, len(threads))], "stack": [0, 1, *range(2, len(threads) + 1)],
            "start_unix_ns": [0, 8 * MS, *[0] * (len(threads) - 1)],
            "end_unix_ns": [8 * MS, 10 * MS, *[10 * MS] * (len(threads) - 1)],
            "count": [8, 2, *[10] * (len(threads) - 1)],
        },
    }  # fmt: skip
    file = tmp_path / "torch-10.json.gz"
    file.write_bytes(gzip.compress(json.dumps(content).encode()))
    joined = sampled_stacks.join(draw(kernels="####", repeat=6), [file], {10: 0}, -BEGIN)
    named = of_training(joined, [(0, Intervals.single(BEGIN, BEGIN + 1000 * MS))])
    assert [(line.name, line.samples) for line in named] == [(first, 8), ("train.py(9): step", 2)]


UPDATE = "/usr/lib/python3/site-packages/torch/optim/adam.py(213): Adam.step"
IN_ENVIRONMENT = "gymnasium/envs/classic_control/cartpole.py(160): CartPoleEnv.step"


@pytest.mark.parametrize(
    ("frame", "facts", "first"),
    [
        (UPDATE, {"stacks", "updating"}, "Update all tensors in one call"),
        (IN_ENVIRONMENT, {"stacks", "environments"}, "Step all environments in one call, each in a process of its own"),
        ("train.py(9): report", {"stacks"}, "Do it rarely, or beside the ops in another process"),
    ],
)
def test_the_fixes_are_of_what_the_time_is_spent_in(frame, facts, first, tmp_path):
    drawn = draw(host=["o" * 30 + " " * 10, " " * 30 + "f" * 10], repeat=6, unit_us=1000)
    text = ("t" * 30 + "u" * 10) * 6
    run = prepare(with_samples(drawn, tmp_path, {0: (text, {"t": "train.py(3): main", "u": frame})}))
    finding, rule = only_finding("host-work", run), load_rules()["host-work"]
    assert facts_of(rule, finding, run) == facts
    titles = [fix.title for fix in rule.fixes_for(finding.situation, frozenset({"torch"}) | facts)]
    assert titles[0] == first
    assert "Annotate code that has no name in the recording" not in titles
    generic = {"Do it rarely, or beside the ops in another process", "Run less Python for each op"}
    assert not generic & set(titles) or facts == {"stacks"}
