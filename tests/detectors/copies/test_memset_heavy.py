"""memset-heavy: memory is filled with zeros over and over."""

from __future__ import annotations

from builders import draw, findings


def test_it_stays_silent_where_zero_grad_asks_for_them():
    """That is zero-grad-fills' finding."""
    marked = draw(
        copies=" " * 10 + "m" * 10 + " " * 20,
        kernels="#" * 10 + " " * 10 + "#" * 20,
        host=["lll", " z"],
        legend={"z": ("ranges", "Optimizer.zero_grad#SGD.zero_grad")},
        repeat=6,
        unit_us=1000,
    )
    assert findings("memset-heavy", marked) == []
    assert len(findings("zero-grad-fills", marked)) == 1
