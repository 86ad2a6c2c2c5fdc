"""What do a call's arguments ask for? As the options of the commands, checked before anything is read."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.model.run import WHOLE_RECORDING, Selection, steps_named
from perfdoctor.model.timeline import Timeline, UserValues
from perfdoctor.patterns import regex
from perfdoctor.system.paths import is_plain
from perfdoctor.system.progress import silent
from perfdoctor.vocabulary.rule_patterns import fitting, near

if TYPE_CHECKING:
    from perfdoctor.diagnosis.questions import Question
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.system.remote import RemoteFile
    from perfdoctor.vocabulary.rulebook import Rule

#: A run folder, a folder of traces, a file, an address (`s3://…`) or a pattern of names.
AnyPath: TypeAlias = "str | os.PathLike[str]"
#: One of the steady steps, or the first and the last one: `3`, `(3, 5)`, `"3..5"`.
AnySteps: TypeAlias = int | str | tuple[int, int]
#: What `what_if` asks: `"input-wait, launch-bound=50%"`, a list of such, or `{"launch-bound": "50%"}`.
AnyQuestions: TypeAlias = str | Sequence[str] | Mapping[str, str]
#: Thresholds by rule and name: `{"input-wait": {"min_share_of_step": 0.1}}`.
AnyThresholds: TypeAlias = Mapping[str, Mapping[str, float]]
#: Called with what is done now, a text at a time.
Progress: TypeAlias = Callable[[str], None]

#: The options of the commands that are arguments here, where an error names one.
_OPTION = regex(
    r"--(what-if|process|range|steps|gpu|peak|tokens-per-step|parameters|cluster|rules|config"
    r"|sqlite|parquet|arrow|perfetto|table|seconds|db)\b ?"
)
_OTHERWISE = {"peak": "peaks", "rules": "own_rules", "table": "tables"}
_PATHS = "Give a run folder, a folder of traces, or files, by their paths."


class AnalysisChoices(Struct, frozen=True):
    """What is diagnosed by which rules, of all that are `known`, and what is asked of it."""

    rules: Sequence[Rule]
    known: Mapping[str, Rule]
    questions: Sequence[Question] = ()
    part: Selection = WHOLE_RECORDING
    user_values: UserValues | None = None
    process: int | None = None
    cluster: str | None = None

    def examined(self, paths: Sequence[Path | RemoteFile], progress: Progress | None) -> Examination:
        """The recordings under these paths, read and diagnosed."""
        from perfdoctor.diagnosis.engine import examine  # noqa: PLC0415 `read` needs no rules
        from perfdoctor.scale.read import read_run  # noqa: PLC0415

        run = read_run(
            paths, progress or silent,
            process=self.process, selection=self.part, user_values=self.user_values, cluster=self.cluster,
        )  # fmt: skip
        return examine(run, self.rules, self.questions)


@contextmanager
def in_words_of_python() -> Iterator[None]:
    """Errors name arguments, not options of a command: `what_if 'x': there is no such rule`.

    They are of one class, and their traceback ends here: where in perfdoctor something was found wrong helps nobody.
    """
    try:
        yield
    except PerfdoctorError as error:
        what, do = (_OPTION.sub(_argument, text) for text in (error.what, error.do))
        raise PerfdoctorError(what, do=do) from None


def _argument(option: re.Match[str]) -> str:
    name = _OTHERWISE.get(option[1], option[1].replace("-", "_"))
    return f"{name} " if option[0].endswith(" ") else name


# --- recordings ------------------------------------------------------------------------------------------------------


def listed(paths: AnyPath | Sequence[AnyPath]) -> list[str]:
    """One or several paths, as texts."""
    given = several(paths)
    if not given:
        raise UsageError("no path is given", do=_PATHS)
    if wrong := [path for path in given if not isinstance(path, (str, os.PathLike))]:
        raise UsageError(f"a {type(wrong[0]).__name__} is no path", do=_PATHS)
    return [os.fspath(path) for path in given]


def several(given: object) -> list[Any]:
    """A sequence as a list, and anything else, also what holds other things than paths or runs, alone in one."""
    is_one = isinstance(given, (str, bytes, os.PathLike, Mapping, Timeline)) or not isinstance(given, Iterable)
    return [given] if is_one else list(given)  # type: ignore[call-overload]  # it is iterable


@contextmanager
def at_hand(
    paths: Sequence[str], progress: Progress | None, *, spread: bool = False
) -> Iterator[Sequence[Path | RemoteFile]]:
    """Paths on this machine: what lies elsewhere is fetched, unless workers read it themselves (`spread`)."""
    with ExitStack() as stack:
        if all(map(is_plain, paths)):
            yield [Path(path) for path in paths]
        else:
            from perfdoctor.system import remote  # noqa: PLC0415 most recordings are here

            yield stack.enter_context(remote.at_hand(paths, progress or silent, spread=spread))


def name_of(paths: Sequence[str]) -> str:
    """The paths in one text, without passwords."""
    if not any("://" in path for path in paths):
        return ", ".join(paths)
    from perfdoctor.system.remote import is_url, shown  # noqa: PLC0415

    return ", ".join(shown(path) if is_url(path) else path for path in paths)


def local(paths: Sequence[Path | RemoteFile]) -> list[Path]:
    return [path for path in paths if isinstance(path, Path)]


def changes_only(progress: Progress | None) -> Progress | None:
    """The `progress` that leaves out a text equal to the one before: each of many files or rules would repeat it."""
    if progress is None:
        return None
    before = ""

    def say(text: str) -> None:
        nonlocal before
        if text != before:
            before = text
            progress(text)

    return say


# --- rules and questions ---------------------------------------------------------------------------------------------


def known_rules(
    own: AnyPath | Sequence[AnyPath] | None = None,
    config: AnyPath | None = None,
    thresholds: AnyThresholds | None = None,
) -> dict[str, Rule]:
    """Our rules and `own` ones, with thresholds of `config`, else of the pyproject.toml here, and then `thresholds`."""
    from perfdoctor.vocabulary import rulebook  # noqa: PLC0415

    file = Path(config) if config is not None else None
    if file is not None and not file.is_file():
        raise UsageError(f"config {file}: there is no such file", do="Name a pyproject.toml.")
    if own is None and file is None:
        found = rulebook.with_thresholds(rulebook.load_rules(), Path.cwd() / "pyproject.toml")
    else:
        from perfdoctor.vocabulary import own_rules  # noqa: PLC0415 they are code of others: few have some

        known = own_rules.all_rules(listed(own) if own is not None else (), file)
        found = rulebook.with_thresholds(known, file or Path.cwd() / "pyproject.toml")
    if thresholds is None:
        return found
    return rulebook.with_values(found, _by_rule(thresholds), "thresholds", rulebook.SET_BY_CALLER)


def _by_rule(thresholds: AnyThresholds) -> AnyThresholds:
    """The thresholds as they are given. Raises UsageError where they are no mapping of mappings."""
    if isinstance(thresholds, Mapping) and all(isinstance(each, Mapping) for each in thresholds.values()):
        return thresholds
    raise UsageError(
        "thresholds is no mapping of mappings",
        do='Give them by rule and name: {"input-wait": {"min_share_of_step": 0.1}}.',
    )


def rules(
    known: Mapping[str, Rule], only: str | Sequence[str] | None, ignored: str | Sequence[str] | None
) -> list[Rule]:
    """The rules that fit `only`, all by default, without those that fit `ignored`; in the order of `known`."""
    wanted = set(known) if only is None else _matching(only, known, "rules")
    wanted -= set() if ignored is None else _matching(ignored, known, "ignore")
    if not wanted:
        raise UsageError("rules and ignore leave no rule", do="Ask for one at least, or leave both out.")
    return [rule for name, rule in known.items() if name in wanted]


def _matching(patterns: str | Sequence[str], known: Mapping[str, Rule], argument: str) -> set[str]:
    """The ids that fit any of these ids or patterns. Raises UsageError for one that fits none."""
    found: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        here = fitting(pattern, known)
        if not here:
            raise UsageError(f"{argument}: there is no rule {pattern!r}", do=_near(pattern, known))
        found.update(here)
    return found


def _near(name: str, known: Mapping[str, Rule]) -> str:
    if "/" in name:
        return "Rules of your own are named with own_rules=FOLDER; then rules selects them by their ids."
    return near(name, known)


def questions(asked: AnyQuestions | None, known: Mapping[str, Rule]) -> tuple[Question, ...]:
    if asked is None:
        return ()
    if isinstance(asked, Mapping):
        asked = [f"{rule}={choice}" if choice else rule for rule, choice in asked.items()]
    from perfdoctor.diagnosis import questions as what_if  # noqa: PLC0415

    return what_if.questions(asked if isinstance(asked, str) else ", ".join(asked), known)


# --- a part, and what the recording does not say ---------------------------------------------------------------------


def selection(range_name: str | None, steps: AnySteps | None) -> Selection:
    """The part that `range` and `steps` name; the whole recording without them."""
    if range_name is not None and not range_name.strip():
        raise UsageError("range names nothing", do='Give the name of a recorded range: range="forward".')
    return Selection(range_name or "", None if steps is None else _steps(steps))


def _steps(steps: AnySteps) -> tuple[int, int]:
    named = f"{steps}" if isinstance(steps, (int, str)) else "..".join(map(str, steps))
    if (found := steps_named(named)) is None:
        raise UsageError(
            f"steps={steps!r}: that names no steps", do="Give the first and the last one, counted from 1: steps=(3, 5)."
        )
    return found


def user_values(
    gpu: str | None,
    peaks: Mapping[str, float] | None,
    tokens_per_step: float | None = None,
    parameters: float | None = None,
) -> UserValues | None:
    """What the recording does not say; None where nothing is given."""
    if gpu is None and not peaks and tokens_per_step is None and parameters is None:
        return None
    from perfdoctor.hardware.peaks import the_one_named  # noqa: PLC0415 few calls name a GPU

    if parameters is not None and tokens_per_step is None:
        raise UsageError(
            "parameters needs tokens_per_step",
            do="Give both: a step's model FLOP are 6 · parameters · tokens (inference: 2 ·).",
        )
    if peaks is not None and not isinstance(peaks, Mapping):
        raise UsageError(f"peaks={peaks!r} is no mapping", do='Give FLOP/s and bytes/s by name: {"bf16": 989e12}.')
    return UserValues(
        gpu=the_one_named(gpu).name if gpu is not None else "",
        peaks={name: _peak(name, rate) for name, rate in (peaks or {}).items()},
        tokens_per_step=_count("tokens_per_step", tokens_per_step),
        parameters=_count("parameters", parameters),
    )


def _peak(name: str, rate: float) -> float:
    from perfdoctor.hardware.peaks import LEAST_RATE, SETTABLE  # noqa: PLC0415

    if name not in SETTABLE:
        raise UsageError(f"peaks: there is no peak {name!r}", do=f"Known: {', '.join(SETTABLE)}.")
    if not (_is_number(rate) and rate >= LEAST_RATE):
        raise UsageError(f"peaks: {name}={rate!r} is no rate", do='Give FLOP/s or bytes/s: {"bf16": 989e12}.')
    return float(rate)


def _count(name: str, count: float | None) -> float:
    if count is None:
        return 0.0
    if not (_is_number(count) and count > 0):
        raise UsageError(f"{name}={count!r}: that is no number above zero", do=f"Give one, as {name}=16e3.")
    return float(count)


def share(name: str, given: float | str | None) -> float | None:
    """A share that is given as a number or in percent, `"5%"`. Raises UsageError for anything else."""
    if given is None or (_is_number(given) and float(given) >= 0):
        return None if given is None else float(given)
    if isinstance(given, str) and given.endswith("%"):
        with suppress(ValueError):
            return share(name, float(given[:-1]) / 100)
    raise UsageError(f"{name}={given!r} is no share", do=f'Give one: {name}=0.05, or "5%".')


def _is_number(given: object) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given)
