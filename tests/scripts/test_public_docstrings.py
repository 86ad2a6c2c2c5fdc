"""What a public function must say: each of its arguments, what it returns, and what it raises."""

from __future__ import annotations

from pathlib import Path

from public_docstrings import complaints, public

LACKING = '''
class Handler:
    """A handler.

    Args:
        steps: How many steps.
    """

    def __init__(self, steps: int, output: str) -> None: ...

    def attach(self, engine: object) -> None:
        """Record this engine."""


def silent() -> int:
    return 1


def share(part_ns: int) -> float:
    """A time as a share."""
    return part_ns / 2


def first(rows: list[int]) -> int:
    """The first row.

    Args:
        rows: The rows.
        columns: The columns.

    Returns:
        The row.
    """
    if not rows:
        raise ValueError
    return rows[0]


def helper(rows: list[int]) -> int:
    """Not public."""
    return rows[0]
'''
WHOLE = '''
def first(rows: list[int], *names: str) -> int:
    """The first row.

    Args:
        rows: The rows.
        *names: Names.

    Returns:
        The row.

    Raises:
        ValueError: There is none.
        KeyError: It is raised by what this calls.
    """
    if not rows:
        raise ValueError
    return rows[0]
'''


def test_what_a_public_function_does_not_say_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "lacking.py"
    file.write_text(LACKING, "utf-8")
    names = {"Handler", "Handler.__init__", "Handler.attach", "silent", "share", "first"}
    said = list(complaints({file: names}))
    of = {name: " ".join(each for each in said if f": {name}:" in each) for name in (*names, "helper")}
    assert "lacking.py:15: silent: no docstring" in said
    assert "[output: str]" in of["Handler.__init__"]
    assert "[engine: object]" in of["Handler.attach"]
    assert "[part_ns: int]" in of["share"]
    assert "return section" in of["share"]
    assert "[columns: ]" in of["first"]
    assert "raise statements" in of["first"]
    assert of["helper"] == ""


def test_whoever_says_all_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "whole.py"
    file.write_text(WHOLE, "utf-8")
    assert list(complaints({file: {"first"}})) == []


def test_public_are_functions_methods_and_what_trainers_are_given() -> None:
    found = {f"{path.parent.name}/{path.name}": names for path, names in public().items()}
    assert found["api/__init__.py"] == {"analyze", "check", "compare", "query", "read", "run", "scaling"}
    assert {"Frame.take", "Timeline.__getitem__"} <= found["model/timeline.py"]
    assert {"Recording.start", "record"} <= found["inside/recording.py"]
    assert {"draw", "draw_steps"} <= found["own_rules/drawn.py"]
    assert "PerfdoctorHandler.attach" in found["integrations/ignite.py"]
    assert not {"Frame.join", "Frame.sorted"} & found["model/timeline.py"]


def test_the_public_api_says_all_of_it() -> None:
    assert list(complaints(public())) == []
