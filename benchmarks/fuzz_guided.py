"""Does any file lead the program astray, searched where its code goes? With atheris, of one reader.

`fuzz.py --guided` starts it for each reader in a process of its own, as atheris instruments modules while they are
imported, and libFuzzer ends its process. The files, their changes and what must hold are those of `fuzz_targets`.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
import zlib
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["perfdoctor.readers", "perfdoctor.model", "perfdoctor.system.run_folder"]):
    import perfdoctor.readers.open  # noqa: F401

import confined
import fuzz_cases
import fuzz_targets
from fuzz_targets import TARGETS, Target

from perfdoctor.recording.agent.perfdoctor_agent import apart

WRONG = 66


class Search:
    """Called with each content. What is wrong is kept below `keep`, once a kind."""

    def __init__(self, target: Target, folder: Path, keep: Path, tried: list[str]) -> None:
        self.target, self.case, self.keep, self.tried = target, folder / "case", keep, tried
        self.known: set[str] = set()

    def __call__(self, content: bytes) -> None:
        fuzz_cases.emptied(self.case)
        path = fuzz_cases.written(self.target.name, content, self.case)
        what = trace = ""
        try:
            fuzz_targets.outcome(self.target.use, path, Random(zlib.crc32(content)))
        except Exception as error:  # noqa: BLE001 all are wrong
            trace = traceback.format_exc()
            what = f"{type(error).__name__} at {traceback.extract_tb(error.__traceback__)[-1][:2]}"
        if self.tried:
            what = f"outside: {self.tried.pop()}"
        if what and what not in self.known:
            self.known.add(what)
            kept = self.keep / f"{zlib.crc32(content):08x}"
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "content").write_bytes(content)
            (kept / "trace.txt").write_text(trace or what, errors="replace")
            print(f"    {what}\n        {kept}", flush=True)


def main(name: str, seconds: str, keep: Path, seed: str) -> None:
    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="perfdoctor-fuzz-") as where:
        folder = Path(where).resolve()
        (folder / "corpus").mkdir()
        for number, content in enumerate(target.seeds()):
            (folder / "corpus" / str(number)).write_bytes(content)
            fuzz_cases.emptied(folder / "case")  # and loads what is imported late
            fuzz_targets.outcome(target.use, fuzz_cases.written(target.name, content, folder / "case"), Random(4))
        (keep / name).mkdir(parents=True, exist_ok=True)
        apart.only_below(str(folder), str(keep / name))
        search = Search(target, folder, keep / name, confined.watched(folder, keep / name))
        limits = [f"-max_total_time={seconds}", f"-timeout={confined.MOST_SECONDS}", f"-seed={seed}", f"-max_len={1 << 20}",
                  f"-rss_limit_mb={confined.MOST_BYTES >> 20}", f"-artifact_prefix={keep / name}/", "-verbosity=0",
                  "-print_final_stats=1"]  # fmt: skip
        atheris.Setup(
            [sys.argv[0], *limits, str(folder / "corpus")],
            search,
            custom_mutator=lambda content, most, number: target.mutation(content, Random(number))[:most],
        )
        atheris.Fuzz()  # never returns


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]).resolve(), sys.argv[4])
