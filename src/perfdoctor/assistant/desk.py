"""What was read for an assistant before, and need not be read again? Diagnoses by what their files look like now."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from perfdoctor.api.arguments import selection
from perfdoctor.assistant.root import AllowedRoot
from perfdoctor.diagnosis.engine import examine
from perfdoctor.diagnosis.questions import Question
from perfdoctor.diagnosis.records import Examination
from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.run import WHOLE_RECORDING, Selection
from perfdoctor.report import json_document
from perfdoctor.scale.read import read_run
from perfdoctor.system.progress import silent
from perfdoctor.vocabulary.own_rules import all_rules, named_in
from perfdoctor.vocabulary.rulebook import Rule, load_rules, with_thresholds

if TYPE_CHECKING:
    from perfdoctor.assistant.arguments import _OfRecording
    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.system.remote import RemoteFile

#: A diagnosis keeps the recording's columns, about a hundred bytes a row. One is always kept, however large.
MOST_KEPT, MOST_ROWS_KEPT = 8, 20_000_000

#: What tells one state of a recording from another: each file with its size and time.
_Seen = tuple[tuple[str, int, int], ...]


class _Key(Struct, frozen=True):
    """`seen`: of the recording's files and of those that say how it is judged."""

    path: str
    seen: _Seen
    part: Selection


class Desk:
    """The recordings below one root, and the last diagnoses of them. `seconds`: that a call may take.

    `folders`, `config`: of rules beside ours, which are code: named when the server starts, and never by a call.
    """

    def __init__(
        self, root: AllowedRoot, seconds: float = 120.0, folders: Sequence[str] = (), config: Path | None = None
    ) -> None:
        self.root, self.seconds, self._folders, self._config = root, seconds, folders, config
        self._kept: OrderedDict[_Key, Examination] = OrderedDict()

    @property
    def known(self) -> dict[str, Rule]:
        """All rules by id, with thresholds of the config that was named, else of the root's own pyproject.toml."""
        folders, config = self._folders, self._config
        known = all_rules(folders, config) if folders or config else load_rules()
        return with_thresholds(known, config or self.root.folder / "pyproject.toml")

    @property
    def rules(self) -> list[Rule]:
        return list(self.known.values())

    def diagnosed(self, about: _OfRecording) -> Diagnosis:
        """The diagnosis that was asked for, also where the recording is no more, and a diagnosis.json is there."""
        is_here = self.root.address(about.path) is None
        if not is_here or json_document.file_of(path := self.root.recording(about.path)) is None:
            return self.examined(about.path, part_of(about)).diagnosis
        from perfdoctor.report.stored_diagnosis import stored  # noqa: PLC0415 most are recordings

        if about.range or about.steps:
            raise PerfdoctorError(
                "a stored diagnosis is of all that was analysed then",
                do="Leave out range and steps, or name the recording.",
            )
        found = stored(about.path, path)
        assert found is not None, "it was one just now"
        return found

    def examined(self, text: str, part: Selection = WHOLE_RECORDING) -> Examination:
        """The diagnosis of the recording that `text` names; one elsewhere is not kept: nobody says when it changes."""
        if self.root.address(text) is not None:
            with self.at_hand(text) as paths:
                return self._read(paths, part)
        path = self.root.recording(text)
        key = _Key(str(path), (*_seen(path), *self._judging()), part)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        found = self._read([path], part)
        for old in [each for each in self._kept if each.path == key.path and each.seen != key.seen]:
            del self._kept[old]
        self._kept[key] = found
        while len(self._kept) > 1 and (len(self._kept) > MOST_KEPT or self._rows() > MOST_ROWS_KEPT):
            self._kept.popitem(last=False)  # the one that was unused longest
        return found

    def again(self, text: str, part: Selection, questions: tuple[Question, ...]) -> Examination:
        """The diagnosis of what this text names with the answers to these questions, from what was read before."""
        return examine(self.examined(text, part).run, self.rules, questions)

    @contextmanager
    def at_hand(self, text: str) -> Iterator[list[Path | RemoteFile]]:
        """The files on this machine that this text names, fetched first if they are elsewhere."""
        address = self.root.address(text)
        if address is None:
            yield [self.root.recording(text)]
            return
        from perfdoctor.system import remote  # noqa: PLC0415 most recordings are here

        with remote.at_hand([address], silent, spread=False) as paths:
            yield list(paths)

    def _read(self, paths: list[Path | RemoteFile], part: Selection) -> Examination:
        return examine(read_run(paths, silent, selection=part), self.rules)

    def _judging(self) -> _Seen:
        """The state of the files of rules and thresholds, which change while somebody writes a rule."""
        config = self._config or self.root.folder / "pyproject.toml"
        of_config = named_in(config) if self._config else ()
        folders = [config.parent / place for place in (*self._folders, *of_config)]
        files = [file for folder in folders for file in folder.glob("*.*") if file.suffix in (".toml", ".py")]
        return tuple(each for file in (*files, config) if file.is_file() for each in _seen(file))

    def _rows(self) -> int:
        return sum(len(frame) for each in self._kept.values() for frame in each.run.timeline.frames.values())


def part_of(about: _OfRecording) -> Selection:
    first, _, last = (about.steps or "").partition("..")
    return selection(about.range, (int(first), int(last or first)) if first else None)


def _seen(path: Path) -> _Seen:
    files = [path] if path.is_file() else [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    found = []
    for file in files:
        try:
            now = file.stat()
        except OSError:  # gone by now
            continue
        found.append((str(file), now.st_size, now.st_mtime_ns))
    return tuple(sorted(found))
