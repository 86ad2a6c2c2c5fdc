"""Is every signal explained, and is every explanation of something that is there?"""

from __future__ import annotations

import re

from folders import ROOT
from tables import of_each

from perfdoctor.report.words import skipped_rules
from perfdoctor.vocabulary.rulebook import load_rules
from perfdoctor.vocabulary.signals import DERIVED_NEEDS, MACHINE_SIGNALS, NEEDS, SIGNALS, need_label

SOURCE = ROOT / "src" / "perfdoctor"
NEEDED = {
    choice
    for rule in load_rules().values()
    for need in (*rule.needs, *rule.needs_without_gpu)
    for choice in need.split("|")
}


def test_what_rules_need_has_a_label_and_says_how_it_is_recorded():
    assert set(NEEDS) >= NEEDED
    for name, need in NEEDS.items():
        assert need.label.strip(), name
        assert re.match(r"(record|analyse|write) ", need.hint), name


def test_what_is_no_signal_is_needed_by_a_rule():
    # time: what rules lack where only memory was recorded; single_kernels: what all rules about kernels lack in graphs.
    assert set(DERIVED_NEEDS) - {"time", "single_kernels"} <= NEEDED


@of_each("signal", list(SIGNALS))
def test_a_signal_is_read_somewhere(signal):
    rooms = (
        path for room in ("metrics", "detectors", "views", "export", "replay") for path in (SOURCE / room).rglob("*.py")
    )
    use = re.compile(rf'"{signal}"|timeline\.{signal}\b')
    assert any(use.search(path.read_text("utf-8")) for path in rooms)


def test_the_same_table_explains_a_rule_and_why_it_was_skipped():
    assert need_label("calls|ops") == "host calls or framework ops"
    assert need_label("transports|nccl_facts") == "NCCL's log"
    assert skipped_rules.to_record(("memory_totals", "allocations|memory")) == (
        f"{NEEDS['memory_totals'].hint}; {NEEDS['allocations'].hint}"
    )


def test_a_machine_belongs_to_no_rank_and_its_signals_need_no_steps():
    for signal in MACHINE_SIGNALS:
        assert not SIGNALS[signal].has_time
        assert "thread" not in SIGNALS[signal].columns


def test_every_signal_has_times_and_a_rank():
    for name, signal in SIGNALS.items():
        assert {"rank", "start_ns", "end_ns", "name"} <= set(signal.columns), name
        assert set(signal.columns.values()) <= {int, float, bool, str}, name
