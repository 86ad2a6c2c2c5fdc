"""Is what is made late what would have been made at once?"""

from __future__ import annotations

import ast
import dataclasses
import gc
import importlib
import inspect
import pickle
import pkgutil
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, field, fields, replace
from functools import cached_property
from threading import Barrier, Thread

import pytest
from folders import ROOT

import perfdoctor
from perfdoctor.late import Regex, dataclass, regex

SOURCE = ROOT / "src" / "perfdoctor"
#: They run in the user's process, without the rest of perfdoctor, or start it.
GUESTS = (
    "perfdoctor.recording.agent", "perfdoctor.recording.measuring", "perfdoctor.recording.launch.child_entry",
    "perfdoctor.integrations.",  # each imports a trainer that need not be there
)  # fmt: skip


def all_modules():
    for found in pkgutil.walk_packages(perfdoctor.__path__, "perfdoctor."):
        if not found.name.startswith((*GUESTS, "perfdoctor.__main__")):
            yield importlib.import_module(found.name)


# --- expressions ---


def test_every_expression_is_valid():
    """A wrong one would show only in the recording that needs it."""
    modules = list(all_modules())
    expressions = [each for each in gc.get_objects() if type(each) is Regex]
    assert len(modules) > 300
    assert len(expressions) > 200
    for each in expressions:
        assert re.compile(each.pattern, each._flags)


def test_an_expression_has_what_a_compiled_one_has():
    late, compiled = regex(r"a(b+)", re.IGNORECASE), re.compile(r"a(b+)", re.IGNORECASE)
    assert late.search("xABBx").group(1) == "BB"
    assert late.sub("-", "abab") == "--"
    assert late.flags == compiled.flags
    assert late.groups == 1
    assert late.pattern == compiled.pattern
    assert regex(b"a").search(b"ba")


def test_an_expression_is_compiled_when_it_is_first_used():
    wrong = regex("(")
    with pytest.raises(re.error):
        wrong.search("")


def test_an_expression_goes_to_another_process():
    used = regex("a+", re.IGNORECASE)
    used.search("a")
    assert pickle.loads(pickle.dumps(used)).search("A")


def test_no_module_compiles_at_its_import():
    """But those that a user's process loads as well, which has the standard library alone."""
    for path in SOURCE.rglob("*.py"):
        if not {"agent", "measuring", "late.py", "masking.py"} & set(path.parts):
            calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Attribute)]
            assert "re.compile" not in {ast.unparse(node) for node in calls}, path


# --- dataclasses ---


def pairs(**options):
    """The same class made late and made at once."""

    def made(decorate):
        class Point:
            x: int
            y: list[int] = field(default_factory=list)
            name: str = "p"
            hidden: int = field(default=0, compare=False, repr=False)

            @cached_property
            def doubled(self) -> int:
                return 2 * self.x

        Point.__qualname__ = "Point"
        return decorate(**options)(Point)

    return made(dataclass), made(dataclasses.dataclass)


@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"frozen": True, "eq": False}])
def test_a_dataclass_is_what_it_would_be_at_once(options):
    late, real = pairs(**options)
    assert repr(late(1, [2])) == repr(real(1, [2]))
    assert (late(1) == late(1)) == (real(1) == real(1))
    assert (late(1) == late(2)) == (real(1) == real(2))
    assert [each.name for each in fields(late)] == [each.name for each in fields(real)]
    assert late.__match_args__ == real.__match_args__
    assert (late.__hash__ is None) == (real.__hash__ is None)
    assert late(3).doubled == 6
    assert replace(late(1), x=5).x == 5
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'x'"):
        late()


#: Every class of the program is also made by `dataclasses`, beside the one that is made late.
MADE_TWICE = """
import contextlib, dataclasses, importlib, inspect, pkgutil
import perfdoctor
from perfdoctor import late

made, decorate = [], late.dataclass

def twice(cls=None, /, **options):
    if cls is None:
        return lambda cls: twice(cls, **options)
    kept = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    twin = type(cls)(cls.__name__, cls.__bases__, kept)
    made.append((decorate(cls, **options), twin, options))
    return cls

late.dataclass = twice
for found in pkgutil.walk_packages(perfdoctor.__path__, "perfdoctor."):
    if not found.name.startswith(GUESTS):
        importlib.import_module(found.name)
for cls, twin, options in made:
    has_base = any(dataclasses.is_dataclass(base) for base in twin.__bases__)
    # `dataclasses` lets no frozen class extend one that is not: ours are refused by their methods, unseen by it.
    real = dataclasses.dataclass(**{**options, "frozen": options.get("frozen", False) and not has_base})(twin)
    assert cls.__match_args__ == real.__match_args__, cls
    assert [repr(f) for f in dataclasses.fields(cls)] == [repr(f) for f in dataclasses.fields(real)], cls
    with contextlib.suppress(TypeError, AttributeError):
        cls.__init__(object())
    parameters = [(p.name, p.kind, p.default is p.empty) for p in inspect.signature(cls.__init__).parameters.values()]
    expected = [(p.name, p.kind, p.default is p.empty) for p in inspect.signature(real.__init__).parameters.values()]
    assert parameters == expected, cls
print(len(made))
"""


def test_help_shows_the_fields_of_a_class_of_which_nothing_was_made_yet():
    @dataclass(frozen=True)
    class Shown:
        first: int
        second: str = "x"
        third: list[int] = field(default_factory=list)

    class Extended(Shown):
        def __init__(self, other: int) -> None:
            super().__init__(other)

    assert list(inspect.signature(Shown).parameters) == ["first", "second", "third"]
    assert inspect.signature(Shown).parameters["second"].default == "x"
    assert list(inspect.signature(Extended).parameters) == ["other"]
    assert Extended(3).first == 3


def test_every_class_is_what_it_would_be_at_once():
    script = f"GUESTS = {(*GUESTS, 'perfdoctor.__main__')!r}\n" + MADE_TWICE
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert int(done.stdout) > 200


FIRST_USES = {
    "called": lambda cls: cls(x=1),
    "its fields": fields,
    "is it one": dataclasses.is_dataclass,
    "matched": lambda cls: cls.__match_args__,
}


@pytest.mark.parametrize("use", FIRST_USES.values(), ids=FIRST_USES)
def test_whatever_is_first_what_is_frozen_stays_so(use):
    late, _real = pairs(frozen=True)
    use(late)
    point = late(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x


def test_a_class_that_extends_one_that_was_never_used():
    @dataclass(frozen=True)
    class Base:
        a: int

    @dataclass(frozen=True)
    class Child(Base):
        b: int = 2

    class Plain(Child):
        pass

    assert [each.name for each in fields(Child)] == ["a", "b"]
    assert (Child(1).a, Child(1).b) == (1, 2)
    assert Plain(1) == Plain(1)


def test_own_methods_are_kept():
    @dataclass(frozen=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

    assert repr(Named("it")) == "it"


def test_two_threads_use_a_class_for_the_first_time():
    for _ in range(20):
        late, _real = pairs(frozen=True)
        start, made = Barrier(4), []

        def use(late=late, start=start, made=made):
            start.wait()
            made.append(late(1).x)

        threads = [Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [1, 1, 1, 1]


def test_an_object_arrives_in_a_process_that_never_made_one():
    @dataclass(frozen=True)
    class Sent:
        x: int

    one, two = object.__new__(Sent), object.__new__(Sent)  # as pickle does
    one.__dict__["x"] = two.__dict__["x"] = 1
    assert one == two
    assert hash(one) == hash(two)
