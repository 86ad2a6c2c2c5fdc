"""How do numbers become those of a summary?"""

from __future__ import annotations

from perfdoctor.metrics.units import ms, percent, us


def test_units_of_a_summary():
    assert (ms(2_500_000), us(2_500), percent(0.25)) == (2.5, 2.5, 25.0)
