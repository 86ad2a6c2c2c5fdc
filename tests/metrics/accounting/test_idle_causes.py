"""Why was the device idle? A picture for each cause, one unit is 100 µs."""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw, idle_units, only_place, timeline

from perfdoctor.metrics.accounting.driving_threads import driving_threads
from perfdoctor.metrics.accounting.idle_causes import PROOFS
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.queued import launch_latency_ns
from perfdoctor.model.timeline import merge
from perfdoctor.vocabulary.parts import IDLE_CAUSES


def causes(**picture) -> dict[str, float]:
    """Units of idle by cause."""
    return idle_units(only_place(draw(**picture)), picture.get("unit_us", 100))


# Waiting for a batch


def test_a_loaders_range_proves_an_input_wait():
    assert causes(
        kernels="####            ####",
        host=["l              l    ",
              " iiiiiiiiiiiiii     "],
    ) == {"input_wait": 11, "launch_bound": 1}  # fmt: skip


def test_a_loaders_op_proves_an_input_wait():
    assert causes(
        kernels="####            ####",
        host=["l              l    ",
              " zzzzzzzzzzzzzz     "],
        legend={"z": ("ops", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")},
    ) == {"input_wait": 11, "launch_bound": 1}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "data_loading", "wait_for_batch", "Load next batch", "get_batch", "next_batch", "dataloader", "fetch_data",
        "enumerate(DataPipe)#X", "DALIGenericIterator", "input pipeline", "batch_load",
    ],
)  # fmt: skip
def test_a_users_own_mark_of_the_loader_proves_an_input_wait(name):
    found = causes(kernels="##          ##", host=["l          l  ", " zzzzzzzzzz   "], legend={"z": ("ranges", name)})
    assert found["input_wait"] == 9


@pytest.mark.parametrize("name", ["forward", "load_state_dict", "reload weights", "update_metadata", "next_token"])
def test_other_marks_prove_no_input_wait(name):
    found = causes(kernels="##          ##", host=["l          l  ", " zzzzzzzzzz   "], legend={"z": ("ranges", name)})
    assert "input_wait" not in found


def test_a_loader_that_waits_while_the_device_is_busy_costs_nothing():
    assert causes(
        kernels="############++++",
        host=["l        l      ",
              " iiiiiiii       "],
    ) == {}  # fmt: skip


def test_between_marked_steps_and_before_the_copy_of_a_batch_a_wait_is_inferred():
    """The user marked the steps and not the loader: no call for 15 units, then a batch is copied."""
    picture = {"copies": "  h" + " " * 22, "kernels": "   #######" + " " * 15, "repeat": 4, "mark": None}
    step = {"legend": {"z": ("ranges", "train_step")}}
    found = causes(**picture, host=["  cl" + " " * 21, "zzzzzzzzzz" + " " * 15], **step)
    assert found == {"input_wait": 3 * 15, "unknown": 3 * 2}

    without_batch = {**picture, "copies": "", "kernels": "  ########" + " " * 15}
    assert "input_wait" not in causes(**without_batch, host=["  l" + " " * 22, "zzzzzzzzzz" + " " * 15], **step)

    without_mark = causes(**picture, host=["  cl" + " " * 21])
    assert "input_wait" not in without_mark


# A single step: what its host does in front of the first work and behind the last


def test_in_front_of_its_first_work_and_behind_its_last_the_host_is_to_blame_for_a_single_step():
    picture = {"kernels": " " * 30 + "####" + " " * 26, "host": [" " * 29 + "l" + " " * 30, "0" * 60]}
    assert causes(**picture) == {"launch_bound": 1, "unknown": 55}
    op = {"legend": {"z": ("ops", "aten::load"), "y": ("functions", "app.py(3): show")}}
    picture["host"] = [*picture["host"], "z" * 28 + " " * 8 + "y" * 24]
    found = causes(**picture, **op)
    assert found == {"launch_bound": 1, "host_work": 55}


def test_waiting_for_a_batch_in_front_of_a_single_step_is_an_input_wait():
    found = causes(
        kernels=" " * 30 + "####",
        host=[" " * 29 + "l" + " " * 4, "0" * 34, " iii" * 7],
    )
    assert found["input_wait"] == 21


def test_behind_the_last_work_of_a_recording_without_steps_nothing_is_counted():
    assert causes(kernels="####" + " " * 26, host=["l" + " " * 29, "o" * 30]) == {}


# Waiting for the device


def test_a_blocking_call_that_drained_the_queue_owns_the_time_until_it_is_refilled():
    """The device runs dry at 6; the sync returns at 7; the host launches again from 8."""
    assert causes(
        kernels="######   ++",
        host="l sssss l  ",
        recorded=["kernels", "copies", "collectives", "calls", "ops"],
    ) == {"host_sync": 3}


def test_a_sync_that_returns_late_is_a_host_sync():
    assert causes(
        kernels="####      ##",
        host=["l sssssss l ",
              "          o "],
    )["host_sync"] >= 5  # fmt: skip


def test_a_sync_with_a_full_queue_costs_nothing():
    """The second kernel was queued before the host stood still: the device never notices."""
    assert causes(
        kernels="######++++++####",
        host=["ll ssssss l     ",
              "          o     "],
    ) == {}  # fmt: skip


def test_waiting_of_a_stream_for_an_event_is_never_a_host_sync():
    found = causes(
        kernels="####      ####",
        host=["l wwwwwwwl    ",
              "  oooooooo    "],
    )  # fmt: skip
    assert found == {"launch_bound": 6}


@pytest.mark.parametrize(
    "name", ["cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent", "cudaEventQuery", "cudaEventRecord"]
)
def test_calls_that_do_not_wait_are_never_a_host_sync(name):
    found = causes(
        kernels="####      ####",
        host=["l zzzzzzzl    ",
              "  oooooooo    "],
        legend={"z": ("calls", name)},
    )  # fmt: skip
    assert "host_sync" not in found


@pytest.mark.parametrize(
    "name",
    [
        "cudaDeviceSynchronize",
        "cudaEventSynchronize",
        "cudaMemcpy",
        "hipStreamSynchronize",
        "cuCtxSynchronize",
        "cuMemcpyDtoH",
    ],
)
def test_every_call_that_waits_for_the_device_is_one(name):
    found = causes(
        kernels="####      ####",
        host=["l zzzzzzzl    ",
              "         o    "],
        legend={"z": ("calls", name)},
    )  # fmt: skip
    assert found["host_sync"] == 6


def test_a_blocking_copy_of_a_result_is_waited_for():
    """`.item()`: when the call returns at 10 the device has run dry at 8, and the next launch comes after that."""
    assert causes(
        kernels="####        ++",
        copies="    DDDD      ",
        host=["l cccccccc l  ",
              "         o    "],
    ) == {"host_sync": 4}  # fmt: skip


def test_a_copy_that_the_host_waits_for_and_that_starts_at_once_blames_the_sync():
    """From the call to the copy pass 5 µs in which nothing is queued: the host waits for its own copy."""
    picture = draw(
        kernels=" #### ",
        copies="      DD",
        host=["l    c  ",
              "ooooooo "],
        unit_us=5,
    )  # fmt: skip
    assert idle_units(only_place(picture), 5) == {"host_sync": 1}


# A host that is too slow


def test_a_host_that_launches_without_a_pause_and_is_late_makes_the_run_launch_bound():
    assert causes(
        kernels=" #   #   #   #  ",
        host=["l   l   l   l   ",
              "ooooooooooooo   "],
    ) == {"launch_bound": 9}  # fmt: skip


def test_kernels_that_wait_in_a_full_queue_are_not_launch_bound():
    """Tiny kernels with gaps, all launched long before: CUDA graphs would not help."""
    found = causes(
        kernels=" " * 8 + "# # # # #",
        host=["lllll", "ooooo"],
    )
    assert found == {"queue_latency": 4}


def test_tiny_kernels_inside_one_cuda_graph_are_busy_time():
    assert causes(kernels=" @@@@@@@@", host=["@", "o"]) == {}


def test_queued_work_that_does_not_start_for_long_has_an_unknown_cause():
    found = causes(kernels="#" + " " * 15 + "#", host=["ll", "oo"], host_ahead=3)
    assert found == {"unknown": 15}


def test_a_launch_that_takes_long_itself_is_no_time_in_the_queue():
    """The device runs dry while the host stands in the launch of the next kernel."""
    long = {"legend": {"c": ("calls", "cudaLaunchKernel")}}
    assert causes(kernels="####     ++", host=["l cccccc   ", "  oooooo   "], **long) == {
        "launch_bound": 4,
        "queue_latency": 1,
    }
    # The first launch of a kernel loads its code.
    loading = {"kernels": "#e#e#e#e" + " " * 60 + "GG", "host": "l" * 8 + "c" * 61, "unit_us": 1000}
    assert causes(**loading, **long) == {"compilation": 60}
    assert causes(kernels="##     ++", host="l h      ".replace("h", "c"), **long) == {
        "queue_latency": 4,
        "launch_bound": 1,
    }


def test_calls_alone_do_not_distinguish_launching_from_other_code():
    assert causes(kernels=" #   #   #   #  ", host="l   l   l   l   ") == {"unknown": 9}


# Code that launches nothing


def test_an_op_that_launches_nothing_for_a_millisecond_is_host_work():
    found = causes(
        kernels="####" + " " * 20 + "####",
        host=["l" + " " * 22 + "l",
              " " * 4 + "o" * 19],
    )  # fmt: skip
    assert found == {"host_work": 19, "launch_bound": 1}


def test_a_python_function_in_view_is_host_work():
    found = causes(
        kernels="####" + " " * 20 + "####",
        host=["l" + " " * 22 + "l", " " * 4 + "f" * 19, "o"],
    )
    assert found == {"host_work": 19, "launch_bound": 1}


def test_where_ops_were_recorded_and_none_ran_it_is_python_code():
    found = causes(kernels="####" + " " * 20 + "####", host=["l" + " " * 22 + "l", "o"])
    assert found == {"host_work": 19, "launch_bound": 1}


def test_where_calls_of_the_system_were_recorded_the_host_runs_its_own_code_outside_of_them():
    picture = {"kernels": "####" + " " * 20 + "##", "host": ["l" + " " * 22 + "l", "      zzzzzz"]}
    waiting = {"legend": {"z": ("os_calls", "pthread_cond_timedwait")}}
    assert causes(**picture, **waiting) == {"host_work": 13, "launch_bound": 1, "unknown": 6}
    of_another = {1: "l" + " " * 22 + "l", 2: "      zzzzzz"}
    assert "host_work" not in causes(**{**picture, "host": of_another}, **waiting), "that thread drives no device"


def test_the_device_is_idle_between_the_copies_of_a_model_on_its_way():
    picture = {"kernels": " " * 40 + "####", "host": [("c" * 4 + "  ") * 6 + "   l", "o"]}
    assert causes(**picture, copies=" hhhh " * 6)["compilation"] == 10
    inputs = {"kernels": " " * 20 + "####", "host": ["c" + " " * 13 + "c   l", "o"]}
    assert "compilation" not in causes(**inputs, copies=" h" + " " * 13 + "h"), "work between the inputs of a model"


def test_where_only_ranges_were_recorded_and_none_ran_it_is_unknown():
    found = causes(kernels="####" + " " * 20 + "####", host=["l" + " " * 22 + "l", "r"])
    assert found == {"unknown": 19, "launch_bound": 1}


def test_the_mark_of_a_step_is_no_host_work():
    """ProfilerStep says that a step is running, not what the host does."""
    place = only_place(draw(kernels=" ####" + " " * 20, host="l" + " " * 24, repeat=4))
    assert set(idle_units(place)) == {"unknown", "launch_bound"}
    assert idle_units(place)["unknown"] == 3 * 20


# Other proven causes


@pytest.mark.parametrize(
    ("char", "cause"),
    [
        ("a", "allocator"),
        ("k", "storage"),
        ("g", "garbage_collection"),
        ("x", "compilation"),
        ("b", "peer_wait"),
        ("P", "profiler"),
        ("R", "storage"),
    ],
)
def test_what_the_host_was_in_while_the_device_ran_dry_is_the_cause(char, cause):
    found = causes(
        kernels="####" + " " * 20 + "####",
        host=["l" + " " * 22 + "l",
              " " * 4 + char * 19],
    )  # fmt: skip
    assert found[cause] == 19
    assert sum(found.values()) == 20


@pytest.mark.parametrize(
    ("signal", "name", "cause"),
    [
        ("calls", "cudaFree", "allocator"),
        ("calls", "cudaHostAlloc", "allocator"),
        ("calls", "cuMemCreate", "allocator"),
        ("calls", "cuModuleLoadData", "compilation"),
        ("calls", "cuLibraryLoadData", "compilation"),
        ("functions", "torch/serialization.py(600): save", "storage"),
        ("functions", "torch/_dynamo/convert_frame.py(1): __call__", "compilation"),
        ("ops", "gc.collect", "garbage_collection"),
        ("ranges", "c10d::wait", "peer_wait"),
        ("os_calls", "fsync", "storage"),
        ("os_calls", "pwrite64", "storage"),
    ],
)
def test_names_of_each_cause_are_known_in_their_signal(signal, name, cause):
    found = causes(
        kernels="####" + " " * 20 + "####",
        host=["l" + " " * 22 + "l",
              " " * 4 + "z" * 19],
        legend={"z": (signal, name)},
    )  # fmt: skip
    assert found[cause] == 19


@pytest.mark.parametrize("name", ["Torch-Compiled Region: 0/0", "CompiledFunction", "CompiledFunctionBackward"])
def test_compiled_code_at_work_is_no_compilation(name):
    found = causes(
        kernels="##" + " " * 12 + "##", host=["l" + " " * 12 + "l", "  " + "z" * 12], legend={"z": ("ops", name)}
    )
    assert "compilation" not in found


def test_a_profiler_that_does_not_name_its_thread_still_explains():
    rows = draw(kernels="####" + " " * 20 + "####", host=["l" + " " * 22 + "l"])
    own = timeline(
        overheads=[
            {
                "start_ns": rows.kernels.start_ns[0] + 400_000,
                "end_ns": rows.kernels.start_ns[1],
                "thread": -1,
                "name": "flush",
            }
        ]
    )
    merged = type(rows).build({**rows.frames, "overheads": own["overheads"]}, rows.recorded | {"overheads"})
    assert idle_units(only_place(merged)) == {"profiler": 20}


def test_the_stronger_evidence_comes_first():
    """A loader that collects garbage, allocates and is flushed by the profiler still keeps the training waiting."""
    found = causes(
        kernels="####            ####",
        host=["l              l    ",
              "    iiiiiiiiiii     ",
              "    ggg             ",
              "       aaa          ",
              "          PPP       "],
    )  # fmt: skip
    assert found["input_wait"] == 11


# What cannot be proven


def test_without_any_call_the_cause_is_unknown():
    assert causes(kernels="####    ####") == {"unknown": 8 - 4}


def test_work_whose_call_is_missing_has_an_unknown_cause():
    found = causes(kernels="####    ##  ++", host=["l             ", "o"])
    assert found == {"unknown": 6}


def test_a_loaders_wait_shows_even_where_no_call_was_recorded():
    assert causes(kernels="####        ####", host=["    iiiiiiii", "o"]) == {"input_wait": 8}


def test_where_calls_alone_were_recorded_those_of_this_ranks_threads_show_its_launching():
    """Of another rank, one call is open all the time."""
    alone = {"recorded": ["kernels", "calls"], "unit_us": 4}
    behind, inside = (draw(kernels="  ## ## ##", host=host, **alone) for host in ("l  l  l", "l   l  l"))
    other = draw(kernels="##########", host="l" + "s" * 10, rank=1, **alone)
    assert idle_units(prepare(merge([behind, other])).places[0], 4) == {"queue_latency": 2}
    assert idle_units(prepare(merge([inside, other])).places[0], 4) == {"launch_bound": 2}


def test_work_queued_before_the_recording_began_waits_in_the_queue():
    """The first kernels have no call: they were launched before. Streams run in order, so the host is not to blame."""
    rows = draw(kernels="## ++ ##   ", host=" ", recorded=["kernels", "calls", "ops"])
    assert idle_units(only_place(rows)) == {"unknown": 2}  # no call at all: nothing proves it

    kernels = draw(kernels="## ++ ##", host="     l", recorded=["kernels", "calls"])
    # the call of the last kernel is drawn first to first: give it to the last one
    numbers = kernels.kernels["correlation"][::-1].copy()
    frames = {**kernels.frames, "kernels": kernels.kernels.with_columns(correlation=numbers)}
    queued = type(kernels).build(frames, kernels.recorded)
    assert idle_units(only_place(queued)) == {"queue_latency": 1, "launch_bound": 1}  # the last one's own launch


def test_every_cause_is_named_even_if_it_did_not_occur():
    assert set(only_place(draw(kernels="##  ##")).idle_causes) == set(IDLE_CAUSES)


def test_every_cause_has_a_proof_but_those_that_the_host_is_not_to_blame_for():
    assert {proof.cause for proof in PROOFS} == set(IDLE_CAUSES) - {"queue_latency", "unknown"}
    assert all(bool(proof.names) != bool(proof.seen) for proof in PROOFS)


# Whose threads count


def test_what_a_thread_that_launches_nothing_does_explains_nothing():
    found = causes(
        kernels="####" + " " * 20 + "####",
        host={1: ["l" + " " * 22 + "l", "o"], 2: [" " * 4 + "i" * 19]},
    )
    assert "input_wait" not in found


def test_threads_that_launch_and_the_one_with_the_marks_drive():
    drawn = draw(kernels="## ++ ", host={1: "l  ", 2: "   l  "}, repeat=3)
    assert driving_threads(drawn, 0) == (1, 2)


def test_a_thread_with_hardly_a_call_does_not_drive():
    calls = [{"start_ns": n, "end_ns": n, "name": "cudaLaunchKernel", "thread": 2 if n == 0 else 1} for n in range(200)]
    assert driving_threads(timeline(calls=calls), 0) == (1,)


def test_a_thread_that_calls_often_and_launches_nothing_does_not_drive():
    """As the watchdog of NCCL, which asks for its events, and a thread that pins memory."""
    calls = [
        {"start_ns": n, "end_ns": n, "name": "cudaEventQuery" if n % 2 else "cudaLaunchKernel", "thread": 1 + n % 2}
        for n in range(200)
    ]
    assert driving_threads(timeline(calls=calls), 0) == (1,)
    assert driving_threads(timeline(calls=[each for each in calls if each["thread"] == 2]), 0) == (2,)


def test_a_thread_that_fills_memory_beside_cuda_graphs_drives_as_well():
    graphs = [{"start_ns": 10 * n, "end_ns": 10 * n, "name": "cudaGraphLaunch", "thread": 1} for n in range(4)]
    fills = [{"start_ns": n, "end_ns": n, "name": "cudaMemsetAsync", "thread": 2} for n in range(200)]
    assert driving_threads(timeline(calls=[*graphs, *fills]), 0) == (1, 2)


def test_without_calls_the_thread_with_most_ops_drives():
    ops = [{"start_ns": n, "end_ns": n, "name": "aten::add", "thread": n // 8} for n in range(10)]
    assert driving_threads(timeline(ops=ops), 0) == (0,)


def test_launch_latency_is_what_the_recording_shows_within_bounds():
    def latency(unit_us: float) -> int:
        place = only_place(draw(kernels=" ## ++ ##", host="l  l  l", unit_us=unit_us))
        return launch_latency_ns(place.work, place.timeline.calls)

    assert latency(5) == 5_000
    assert latency(100) == 20_000  # a queue that is always full hides the latency
    assert launch_latency_ns(prepare(draw(kernels="## ##")).places[0].work, draw(kernels="#").calls) == 20_000


# CUDA graphs whose kernels were not all recorded


def graph(kernels: str, host: str, *launched_by: int, **more):
    """Kernels on one stream; the n-th belongs to the launch `launched_by[n]`, numbered from 1 as the calls are."""
    drawn = draw(kernels=kernels, host=[host, "o"], **more)
    numbers = np.array(launched_by, dtype=np.int64)
    frames = {**drawn.frames, "kernels": drawn.kernels.with_columns(correlation=numbers)}
    return type(drawn).build(frames, drawn.recorded)


def test_a_long_pause_between_two_kernels_of_one_graph_is_the_graphs_own():
    drawn = graph(" #" + " " * 15 + "+", "@@", 1, 1)
    assert idle_units(only_place(drawn)) == {"queue_latency": 15}


def test_a_long_pause_before_the_first_recorded_kernel_of_a_queued_graph_is_the_graphs_own():
    drawn = graph(" ###" + " " * 15 + "+", "l@", 1, 2)
    assert idle_units(only_place(drawn)) == {"queue_latency": 15}


@pytest.mark.parametrize("launch", ["@", "l"])
def test_a_long_pause_at_the_recordings_edge_before_the_first_call_of_a_stream_tells_nothing(launch):
    drawn = draw(kernels="#" + " " * 15 + "+ -", host=[" " * 8 + launch, "o"], kernel_names={"-": "other"})
    frames = {**drawn.frames, "kernels": drawn.kernels.with_columns(correlation=np.array([-1, -1, 1]))}
    found = idle_units(only_place(type(drawn).build(frames, drawn.recorded)))
    assert found["queue_latency"] >= 15
    assert "unknown" not in found


def test_the_same_pause_before_a_plain_kernel_stays_unknown():
    drawn = graph(" ###" + " " * 15 + "+", "ll", 1, 2)
    assert idle_units(only_place(drawn)) == {"unknown": 15}


def test_a_graph_that_was_launched_late_is_the_hosts_fault():
    drawn = graph(" ###" + " " * 15 + "+", "l" + " " * 17 + "@", 1, 2)
    assert "queue_latency" not in idle_units(only_place(drawn))


def test_where_graphs_are_recorded_as_a_whole_a_pause_before_one_is_not_the_graphs():
    drawn = graph(" @" + " " * 15 + "@", "@@", 1, 2)
    assert idle_units(only_place(drawn)) == {"unknown": 15}


def test_a_stream_whose_first_work_was_queued_before_the_recording_does_not_depend_on_another():
    """Work with a call on stream 7 says nothing of what was queued on stream 8."""
    drawn = draw(kernels=["#      +", "  -- -  "], host=["l      l"], kernel_names={"-": "other"})
    rows = drawn.kernels
    late = rows["stream"] == 8
    numbers = np.where(late, -1, rows["correlation"])
    numbers[np.flatnonzero(late)[-1]] = 2
    frames = {**drawn.frames, "kernels": rows.with_columns(correlation=numbers)}
    place = only_place(type(drawn).build(frames, drawn.recorded))
    assert idle_units(place)["queue_latency"] == 1  # in front of the first work of stream 8


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("torch/utils/data/dataloader.py(701): __next__", "input_wait"),
        ("torch/utils/data/dataloader.py(440): _get_iterator", "input_wait"),
        ("nvidia/dali/plugin/pytorch/__init__.py(250): __next__", "input_wait"),
        ("nvidia/dali/pipeline.py(1000): run", "input_wait"),
        ("webdataset/pipeline.py(64): iterator", "input_wait"),
        ("<built-in function collect>", "garbage_collection"),
        ("torch/distributed/distributed_c10d.py(3500): all_gather_object", "peer_wait"),
        ("triton/runtime/autotuner.py(150): _bench", "compilation"),
    ],
)
def test_functions_of_python_prove_a_cause(name, cause):
    found = causes(
        kernels="####" + " " * 20 + "####",
        host=["l" + " " * 22 + "l",
              " " * 4 + "z" * 19],
        legend={"z": ("functions", name)},
    )  # fmt: skip
    assert found[cause] == 19


@pytest.mark.parametrize(
    "name",
    [
        "my/dataloader.py(12): collate",
        "torch/utils/data/dataloader.py(300): __init__",
        "transformers/pipeline.py(3): run",
    ],
)
def test_functions_beside_them_prove_nothing_of_the_kind(name):
    found = causes(
        kernels="####" + " " * 20 + "####",
        host=["l" + " " * 22 + "l", " " * 4 + "z" * 19],
        legend={"z": ("functions", name)},
    )
    assert found["host_work"] == 19
