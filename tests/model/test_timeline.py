"""Does a Timeline hold what was recorded, and refuse what breaks its declaration?"""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from builders import draw, frame, timeline

from perfdoctor.errors import MOST_CHARACTERS, PerfdoctorError
from perfdoctor.model.timeline import SIGNALS, Device, Frame, Source, Text, Timeline, merge


def row(start: int, end: int, **columns: object) -> dict[str, object]:
    return {"start_ns": start, "end_ns": end, **columns}


def test_a_text_holds_each_different_value_once():
    text = Text.of(["a", "b", "a"])
    assert (list(text), text.values, len(text), text[2]) == (["a", "b", "a"], ["a", "b"], 3, "a")
    assert text.codes.dtype == np.int32


def test_questions_about_a_text_are_answered_row_by_row():
    text = Text.of(["gemm", "copy", "sgemm"])
    assert text.equals("copy").tolist() == [False, True, False]
    assert text.matches(re.compile("gemm")).tolist() == [True, False, True]
    assert list(text.take(np.array([False, True, True]))) == ["copy", "sgemm"]


def test_a_test_is_asked_once_for_each_different_value_and_only_for_those_in_use():
    asked = []
    text = Text.of(["a", "b", "a", "c", "d"]).take(np.array([0, 2]))
    assert text.where(lambda value: asked.append(value) or value == "a").tolist() == [True, True]
    assert asked == ["a"]


def test_answers_about_some_rows_hold_for_all_and_not_for_those_that_were_not_asked():
    text, pattern = Text.of(["gemm", "copy", "sgemm", "add"]), re.compile("gemm")
    assert text.take(np.array([1, 2])).matches(pattern).tolist() == [False, True]
    assert text.matches(pattern).tolist() == [True, False, True, False]
    assert text.matches(re.compile("add")).tolist() == [False, False, False, True]
    assert text.take(np.array([3, 0])).matches(pattern).tolist() == [False, True]


def test_an_empty_text_answers_every_question():
    empty = Text.of([])
    assert list(empty.where(bool)) == list(empty.mapped(str.upper)) == list(Text.join([])) == []


def test_a_text_without_rows_but_with_values_answers_every_question():
    nothing = Text.of(["a", "b"]).take(np.zeros(2, dtype=bool))
    assert nothing.equals("a").tolist() == []
    assert list(nothing.mapped(str.upper)) == []


def test_a_text_is_not_compared_by_equals_signs_and_says_what_is():
    text = Text.of(["a", "b", "c", "d" * 100])
    for compare in (lambda: text == "a", lambda: text != "a", lambda: text == ["a", "b", "c"]):
        with pytest.raises(PerfdoctorError, match=r"\.equals\("):
            compare()
    assert text == text  # noqa: PLR0124 what holds a column may be compared with itself
    assert repr(text) == "<Text of 4 rows: 'a', 'b', 'c', …>"
    assert repr(text.take(np.array([3]))) == f"<Text of 1 rows: '{'d' * 40}…'>"


class Series:
    """As pandas, Polars and others hand a column on."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __len__(self):
        return self.values.size


def test_rows_are_taken_by_masks_indices_and_slices_of_any_kind():
    kernels = draw(kernels="# + #").frames["kernels"]
    starts = kernels.start_ns.tolist()
    for first_and_last in (
        [0, 2], (0, -1), np.array([0, 2], np.uint8), slice(None, None, 2),
        [True, False, True], np.array([True, False, True]), Series([True, False, True]), Series([0, 2]),
    ):  # fmt: skip
        assert kernels.take(first_and_last).start_ns.tolist() == [starts[0], starts[2]]
    assert len(kernels.take([])) == len(kernels.take(np.empty(0, np.int64))) == 0


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (False, "False names no rows"),
        (1, "1 names no rows"),
        (None, "None names no rows"),
        ("gemm", "gemm names no rows"),
        (["gemm"], "an array (1,) of <U4 names no rows"),
        ([0.5], "an array (1,) of float64 names no rows"),
        (np.ones((3, 1), bool), "an array (3, 1) of bool names no rows"),
        (np.ones(2, bool), "a mask of 2 does not fit 3 rows"),
        ([True], "a mask of 1 does not fit 3 rows"),
        ([0, 3], "of 3 rows there is none with the number 3"),
        ([-4], "of 3 rows there is none with the number -4"),
    ],
)
def test_what_names_no_rows_of_a_frame_is_an_error(rows, what):
    with pytest.raises(PerfdoctorError) as error:
        draw(kernels="# + #").frames["kernels"].take(rows)
    assert error.value.what == what


def test_a_timeline_names_its_signals():
    drawn = draw(kernels="#")
    assert "kernels" in drawn
    assert "kernel" not in drawn
    assert list(drawn) == list(SIGNALS)


def test_joined_and_mapped_texts_share_a_code_for_equal_values():
    joined = Text.join([Text.of(["a", "b"]), Text.of(["b", "c"])])
    assert (list(joined), joined.values) == (["a", "b", "b", "c"], ["a", "b", "c"])
    assert Text.of(["k1", "k2"]).mapped(lambda value: value[0]).values == ["k"]
    assert list(Text.constant("x", 3)) == ["x", "x", "x"]


def test_a_frame_knows_numbers_from_text():
    kernels = frame("kernels", [row(1, 4, name="k")])
    assert kernels["end_ns"].tolist() == [4]
    assert kernels.duration_ns.tolist() == [3]
    assert list(kernels.name) == ["k"]
    with pytest.raises(PerfdoctorError, match=r"Use frame\.text\('name'\)"):
        kernels["name"]
    with pytest.raises(PerfdoctorError, match="'start_ns' is not text"):
        kernels.text("start_ns")


def test_rows_are_chosen_by_equal_columns():
    kernels = frame("kernels", [row(0, 1, name="a", device=0), row(1, 2, name="b", device=1)])
    assert list(kernels.of(device=1).name) == ["b"]
    assert kernels.of(rank=0) is kernels
    assert len(kernels.of(rank=3)) == 0


def test_a_column_can_be_replaced():
    kernels = frame("kernels", [row(5, 6, name="a")])
    assert kernels.with_columns(start_ns=np.array([2])).start_ns.tolist() == [2]


def test_frames_joined_are_sorted_again():
    late, early = frame("ops", [row(5, 6, name="late")]), frame("ops", [row(1, 2, name="early")])
    assert list(Frame.join([late, early]).name) == ["early", "late"]


def test_a_frame_becomes_a_pandas_table():
    pytest.importorskip("pandas", reason="an extra: pip install 'perfdoctor[pandas]'")
    table = frame("kernels", [row(0, 1, name="a"), row(1, 2, name="b"), row(2, 3, name="a")]).to_pandas()
    assert table["name"].tolist() == ["a", "b", "a"]
    assert table["end_ns"].sum() == 6


def test_names_that_became_equal_are_one_category_of_pandas():
    pytest.importorskip("pandas", reason="an extra: pip install 'perfdoctor[pandas]'")
    name = Text(np.array([0, 1, 2], np.int32), ["a", "b", "a"])
    series = Frame({"start_ns": np.arange(3), "name": name}).to_pandas()["name"]
    assert series.tolist() == ["a", "b", "a"]
    assert series.cat.categories.tolist() == ["a", "b"]


def test_without_pandas_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PerfdoctorError, match="pandas is not installed") as caught:
        frame("kernels", [row(0, 1, name="a")]).to_pandas()
    assert "pip install 'perfdoctor[pandas]'" in caught.value.do


def test_build_sorts_rows_and_fills_what_is_absent():
    built = timeline(kernels=[row(9, 10, name="b"), row(1, 2, name="a")])
    assert list(built.kernels.name) == ["a", "b"]
    assert set(built.frames) == set(SIGNALS)
    assert len(built["os_calls"]) == 0


def test_recorded_and_empty_is_not_the_same_as_not_recorded():
    built = timeline(["kernels", "collectives"], kernels=[row(0, 1, name="k")])
    assert "collectives" in built.recorded
    assert "copies" not in built.recorded
    assert len(built.collectives) == len(built.copies) == 0


@pytest.mark.parametrize(
    ("signal", "change", "message"),
    [
        ("kernels", {"end_ns": np.array([-1])}, "ends before it starts"),
        ("kernels", {"stream": np.array([1.0])}, r"kernels\.stream: float64"),
        ("kernels", {"name": np.array([1])}, r"kernels\.name is not text"),
        ("kernels", {"stream": Text.of(["7"])}, r"kernels\.stream is text"),
        ("kernels", {"stream": np.array([1, 2])}, r"kernels\.stream: 2 rows of 1"),
        ("kernels", {"unheard_of": np.array([1])}, "kernels: vocabulary/signals.toml has no column unheard_of"),
    ],
)
def test_a_frame_that_breaks_its_declaration_is_refused(signal, change, message):
    broken = frame(signal, [row(0, 1, name="k")]).with_columns(**change)
    with pytest.raises(AssertionError, match=message):
        Timeline.build({signal: broken}, [signal])


def test_a_column_that_a_reader_leaves_out_is_named():
    columns = dict(frame("kernels", [row(0, 1, name="k")]).columns)
    del columns["blocks"]
    with pytest.raises(AssertionError, match="kernels: its reader must give blocks"):
        Timeline.build({"kernels": Frame(columns)}, ["kernels"])


def test_an_unknown_signal_is_refused():
    with pytest.raises(AssertionError, match="unknown signals"):
        Timeline.build({}, ["kernel"])


def test_self_check_refuses_unsorted_rows_and_missing_frames():
    kernels = frame("kernels", [row(9, 10, name="b"), row(1, 2, name="a")])
    full = {signal: Frame.empty(signal) for signal in SIGNALS}
    with pytest.raises(AssertionError, match="not sorted"):
        Timeline({**full, "kernels": kernels}, frozenset()).self_check()
    with pytest.raises(AssertionError, match="signals {'kernels'}"):
        Timeline({signal: full[signal] for signal in SIGNALS if signal != "kernels"}, frozenset()).self_check()


def test_ranks_come_from_rows_and_from_devices():
    built = timeline(kernels=[row(0, 1, name="k", rank=2)], ops=[row(0, 1, name="o", rank=0)], devices=[Device(5, 0)])
    assert built.ranks == (0, 2, 5)


def test_places_are_where_work_ran():
    built = timeline(
        kernels=[row(0, 1, name="k", rank=1, device=3)],
        copies=[row(0, 1, name="c", rank=1, device=0)],
        ops=[row(0, 1, name="o", rank=7)],
    )
    assert built.places == ((1, 0), (1, 3))


def test_a_device_that_nothing_is_known_of_has_no_name():
    built = timeline(devices=[Device(0, 1, "H100")], kernels=[])
    assert built.device_of(0, 1).name == "H100"
    assert built.device_of(0, 0) == Device(0, 0)


def test_notes_are_added_and_never_lost():
    assert timeline(kernels=[]).with_notes("one").with_notes("two").notes == ("one", "two")


def test_merged_recordings_keep_every_row_source_and_note():
    one = Timeline.build(
        {"kernels": frame("kernels", [row(5, 6, name="k", rank=0)])}, ["kernels"],
        sources=[Source("kineto", "a", "2")], world_size=2, notes=["same", "one"], thread_names={(1, 1): "main"},
    )  # fmt: skip
    two = Timeline.build(
        {"kernels": frame("kernels", [row(1, 2, name="k", rank=1)]), "ops": frame("ops", [row(0, 1, name="o", rank=1)])},
        ["kernels", "ops"],
        sources=[Source("kineto", "b", "2")], world_size=4, notes=["same", "two"], thread_names={(2, 1): "main"},
    )  # fmt: skip
    both = merge([one, two])
    assert both.kernels["rank"].tolist() == [1, 0]
    assert both.recorded == {"kernels", "ops"}
    assert [source.file for source in both.sources] == ["a", "b"]
    assert (both.world_size, both.notes, len(both.thread_names)) == (4, ("same", "one", "two"), 2)


def test_a_rank_of_several_recordings_is_named():
    one, two, other = (draw(kernels="##", rank=rank) for rank in (0, 0, 1))
    (note,) = [each for each in merge([one, two, other]).notes if "hold rank 0:" in each]
    assert note not in merge([one, other]).notes


def test_one_recording_is_merged_into_itself():
    one = draw(kernels="##")
    assert merge([one]) is one


@pytest.mark.parametrize("start", [-(2**63), -(2**61), 2**61])
def test_rows_beyond_what_can_be_added_are_left_out(start):
    rows = frame("links", [row(start, max(start, 0)), row(0, 5)])
    assert Timeline.build({"links": rows}, frozenset({"links"}))["links"].end_ns.tolist() == [5]


def test_a_note_and_an_error_that_quote_a_whole_file_are_lines_that_somebody_reads():
    long = "begin" + "x" * 50_000 + "end"
    notes = timeline(kernels=[]).with_notes(long, "short").notes[-2:]
    assert notes[1] == "short"
    assert len(notes[0]) < MOST_CHARACTERS
    assert notes[0].startswith("begin")
    assert notes[0].endswith("end")
    error = PerfdoctorError(long, do="Look.")
    assert error.what == notes[0] == error.args[0]
    assert PerfdoctorError("x" * MOST_CHARACTERS, do="Look.").what == "x" * MOST_CHARACTERS
