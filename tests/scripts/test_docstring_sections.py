"""A docstring as Markdown: prose, a list of arguments, what is returned and raised, and examples."""

from __future__ import annotations

import pytest
from docstring_sections import marked
from generated_pages import pages

DOCSTRING = """A share of a step.

>>> share(1)
0.5

It is a mean
of all ranks.

Args:
    part_ns: A time, in ns: that of
        one step.
    *names: Names, "a|b" or `a|b`.

Returns:
    The share,
    from 0 to 1.

Raises:
    ValueError: It is negative.
    KeyError: A name
        is unknown.

Example:
    with share(1):
        ...

More of it."""
MARKED = """A share of a step.

```pycon
>>> share(1)
0.5
```

It is a mean
of all ranks.

* `part_ns`: A time, in ns: that of one step.
* `*names`: Names, "a|b" or `a|b`.

**Returns:** The share, from 0 to 1.

**Raises `ValueError`:** It is negative.

**Raises `KeyError`:** A name is unknown.

```python
with share(1):
    ...
```

More of it.
"""


def test_each_section_is_drawn_in_its_own_way() -> None:
    assert marked(DOCSTRING) == MARKED


def test_prose_alone_stays_as_it_is() -> None:
    assert marked("One line.") == "One line.\n"
    assert marked("") == ""


@pytest.mark.parametrize("page", ["api.md", "rule-api.md"])
def test_no_section_of_a_public_docstring_is_left_undrawn(page: str) -> None:
    text = pages()[page]
    assert "\n* `" in text
    assert not [
        line for line in text.splitlines() if line.strip() in ("Args:", "Returns:", "Raises:", "Yields:", "Example:")
    ]
