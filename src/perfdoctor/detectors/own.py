"""How is a rule that is not ours called? Its code is loaded from its own folder, and what it finds is checked.

Whatever it raises is an error of that rule alone, with the file and the line. How long it takes is not limited: it is
code that the user named and trusts, as any program, and Ctrl-C ends it. A limit would take a signal handler
in the process that imports us, or a fork without what the rules share.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import types
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from perfdoctor.detectors import RuleError
from perfdoctor.detectors.own_findings import checked
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.system.paths import printable
from perfdoctor.vocabulary.rulebook import Rule, RuleOrigin

_Detector = Callable[[Run, Mapping[str, float]], Iterable[Finding]]
#: By folder: what its files were when its modules were loaded.
_loaded_states: dict[str, tuple[tuple[str, int, int], ...]] = {}


def detector(rule: Rule, origin: RuleOrigin) -> Callable[[Run, Mapping[str, float]], Iterator[Finding]]:
    """The rule's `detect`, with checked findings. Raises RuleError where its code cannot be loaded, or raises."""
    with _blamed(rule, origin):
        files = sorted(Path(origin.folder).glob("*.py"))
        # In a notebook a rule is written while the process goes on.
        state = tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
        detect = _detect_of(origin.folder, rule.module, state)

    def found(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
        run.timeline.protect()
        with _blamed(rule, origin):
            made: Any = detect(run, at)
            if not isinstance(made, Iterable):
                raise TypeError(f"detect returned {type(made).__name__}, and no findings: it has no `yield`")
            findings = [checked(rule, each, run) for each in made]
        yield from findings

    return found


@contextlib.contextmanager
def _blamed(rule: Rule, origin: RuleOrigin) -> Iterator[None]:
    """Turn what is raised in here into the rule's error. It prints to standard error: reports may be on the other."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except RuleError:
        raise
    except KeyboardInterrupt as error:
        print(printable(f"perfdoctor: stopped in the rule {rule.id}: {_where(error, rule, origin)}"), file=sys.stderr)  # noqa: T201
        raise
    except (Exception, SystemExit) as error:  # a rule that ends the program ends only itself
        said = " ".join(str(error).split()) or "without a reason"
        raise RuleError(f"{_where(error, rule, origin)}: {type(error).__name__}: {said}") from error


def _where(error: BaseException, rule: Rule, origin: RuleOrigin) -> str:
    """`slow_tokenizer.py, line 12`: the innermost line in the rule's folder."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).parent == Path(origin.folder):
        return f"{Path(error.filename).name}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(origin.folder):
            return f"{Path(frame.filename).relative_to(origin.folder).as_posix()}, line {frame.lineno}"
    return f"{rule.module}.py"


@lru_cache(maxsize=256)
def _detect_of(folder: str, module: str, state: tuple[tuple[str, int, int], ...]) -> _Detector:
    """The `detect` of a module. If the `state` of the folder has changed, all modules in it are loaded again."""
    if _loaded_states.get(folder) != state:
        package = _package_of(Path(folder))
        for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
            del sys.modules[name]
        _loaded_states[folder] = state
    detect: Any = getattr(_loaded(Path(folder), module), "detect", None)
    if not callable(detect):
        raise TypeError("there is no function detect(run, at)")
    made: _Detector = detect
    return made


def _package_of(folder: Path) -> str:
    return f"perfdoctor_own_rules_{zlib.crc32(os.fsencode(folder)):08x}"


class _Uncached(SourceFileLoader):
    """A loader that keeps no bytecode: a folder of rules gets no files from us, and any change is seen at once."""

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _loaded(folder: Path, module: str) -> types.ModuleType:
    """The module of that file. Its folder is a package, in which `from . import …` finds others, and on no path.

    On `sys.path` a file of it could stand in for any module of the program that is not loaded yet.
    """
    package = _package_of(folder)
    if package not in sys.modules:
        made = types.ModuleType(package)
        made.__path__ = [str(folder)]
        sys.modules[package] = made
    name, file = f"{package}.{module}", folder / f"{module}.py"
    spec = spec_from_file_location(name, file, loader=_Uncached(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    found = module_from_spec(spec)
    sys.modules[name] = found
    try:
        spec.loader.exec_module(found)
    except BaseException:
        del sys.modules[name]
        raise
    return found
