"""What a comparison shows of a promise is a row of the ledger, once, where the project has a history."""

from __future__ import annotations

from msgspec.structs import replace
from report.test_comparison import poisoned  # noqa: F401 a fixture

from perfdoctor.cli import history
from perfdoctor.cli.compare import promise_rows
from perfdoctor.comparison.records import Promise
from perfdoctor.history import promises, store


def test_a_promise_is_a_row_once(poisoned, tmp_path, monkeypatch) -> None:  # noqa: F811
    comparison, _ = poisoned
    step_ns = comparison.step.before.mean_ns
    promise = Promise(
        ("input-wait",),
        "Training waits",
        0.1 * step_ns,
        0.2 * step_ns,
        0.3 * step_ns,
        0.15 * step_ns,
        "kept",
        "",
        whole=True,
    )
    gone = replace(comparison, promises=(promise,), common_share=None)
    rows = promise_rows(gone, {"GPU": "NVIDIA H100", "torch": "2.9"})
    assert (rows[0]["rule"], rows[0]["machine"], rows[0]["verdict"]) == ("input-wait", "NVIDIA H100", "kept")
    assert abs(rows[0]["measured_likely"] - 0.15) < 1e-9
    assert promise_rows(gone, {}) == []
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "history.db"))
    history.save_promises(rows, quiet=True, only_if_there=True)
    assert not (tmp_path / "history.db").exists()
    for _ in range(2):
        history.save_promises(rows, quiet=True)
    with store.read(tmp_path / "history.db") as db:
        assert len(promises.listed(db)) == 1
