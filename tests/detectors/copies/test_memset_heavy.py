"""memset-heavy: memory is filled with zeros over and over."""

from __future__ import annotations

from builders import findings
from exposed_copy_cases import zero_grad_memsets


def test_it_stays_silent_where_zero_grad_asks_for_them():
    """That is zero-grad-fills' finding."""
    assert findings("memset-heavy", zero_grad_memsets()) == []
    assert len(findings("zero-grad-fills", zero_grad_memsets())) == 1
