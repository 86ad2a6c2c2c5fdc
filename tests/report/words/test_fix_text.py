"""Is code separated from prose?"""

from __future__ import annotations

from perfdoctor.report.words.fix_text import blocks


def shape(how):
    return [(block.code, block.text, block.language) for block in blocks(how)]


def test_text_without_fences_is_code_as_it_stands():
    assert shape("\n# before\nfor x in y:\n    f(x)\n\n") == [(True, "# before\nfor x in y:\n    f(x)", "")]


def test_with_fences_the_rest_is_prose():
    how = "Do this:\n\n```python\nf(\n    x)\n```\nthen that.\n~~~\nls\n~~~"
    assert shape(how) == [
        (False, "Do this:", ""),
        (True, "f(\n    x)", "python"),
        (False, "then that.", ""),
        (True, "ls", ""),
    ]


def test_a_fence_that_is_never_closed_ends_with_the_text():
    assert shape("```\nls\n") == [(True, "ls", "")]


def test_nothing_gives_nothing():
    assert shape(" \n ") == []
