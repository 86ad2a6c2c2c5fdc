"""Are names that count one name, and others not?"""

from __future__ import annotations

import pytest

from perfdoctor.vocabulary.names.running_numbers import without_numbers


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ProfilerStep#3", "ProfilerStep#"),
        ("ProfilerStep#12", "ProfilerStep#"),
        ("layer 1 of 24", "layer # of #"),
        ("forward", "forward"),
        ("C# in #", "C# in #"),
        ("", ""),
    ],
)
def test_a_number_and_the_sign_before_it_are_one_sign(name, given):
    assert without_numbers(name) == given
