"""Do patterns for names of frameworks stand in vocabulary/names alone, and each of them once?"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from folders import ROOT

from perfdoctor.patterns import Regex
from perfdoctor.vocabulary import names

SOURCES = ROOT / "src" / "perfdoctor"
#: Readers parse what a tool writes: its formats are theirs.
#: Folders of a machine are no names of a framework: `/usr/local/cuda-13`.
ROOMS_WITH_PATTERNS = ("vocabulary/names/", "readers/", "scrubbing/paths.py")
FRAMEWORKS = re.compile(
    r"\baten|autograd|torch[/.:\\\[]|cuda|\bhip[A-Z(]|nccl|gloo|c10d|[Oo]ptimizer|DataLoader|ProfilerStep|DataParallel"
    r"|FSDP|AccumulateGrad|[Ss]oftmax|gemm|elementwise|_kernel|triton_|\bMPI_|zero_grad|cudnn|cublas"
)


def patterns_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of what is given to `regex`, or to a function of `re`, as its pattern."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and node.args and re.match(r"regex$|re\.", ast.unparse(node.func)):
            parts = (part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant))
            yield node.lineno, "".join(part for part in parts if isinstance(part, str))


def test_patterns_for_names_of_frameworks_stand_in_their_room():
    offenders = [
        f"{place}:{line}: {pattern}"
        for path in sorted(SOURCES.rglob("*.py"))
        if not (place := path.relative_to(SOURCES).as_posix()).startswith(ROOMS_WITH_PATTERNS)
        for line, pattern in patterns_of(path)
        if FRAMEWORKS.search(pattern)
    ]
    assert offenders == [], "these belong to src/perfdoctor/vocabulary/names"


def test_no_pattern_stands_there_twice():
    modules = [
        importlib.import_module(f"{names.__name__}.{found.name}") for found in pkgutil.iter_modules(names.__path__)
    ]
    patterns = {
        (module.__name__, name): (value.pattern, value.flags)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Regex)
    }
    often = {pattern for pattern, times in Counter(patterns.values()).items() if times > 1}
    assert [where for where, pattern in patterns.items() if pattern in often] == []
