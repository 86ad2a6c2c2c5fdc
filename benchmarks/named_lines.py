"""Do findings name the line that is slow? Lines made slow on purpose in programs of others, and those of the examples.

    python benchmarks/named_lines.py [--rounds 5] [NAME …]

A program of `programs/` is copied into a temporary folder, and one slow statement is put into it there; an example is slow
as it is. Each is recorded with the default options of `perfdoctor run`. Of the first finding about the program, which is
one about no other program, the first line is held against the truth: "line" is the planted statement, "function" another
line of the same function.

The programs need their packages (`PERFDOCTOR_PROGRAMS_PYTHON`, see run_programs.py), the examples torch.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_PROGRAMS, _EXAMPLES = _ROOT / "benchmarks" / "programs", _ROOT / "examples"
_MARK = "# planted"
#: More than are recorded and timed of a step of 100 ms.
_STEPS = "40"
#: About other programs on the machine, not about this one.
_OTHERS = {"busy-machine"}


@dataclass(frozen=True)
class Case:
    """`edits`: texts that are there once, and what they become. `truth`: a text of the slow statement, in `file`."""

    name: str
    program: str
    edits: tuple[tuple[str, str], ...] = ()
    truth: str = _MARK
    file: str = ""
    arguments: tuple[str, ...] = ()
    ranks: int = 1


def _slow(numbers: int) -> str:
    return f"sum(number * number for number in range({numbers}))  {_MARK}"


def _before(line: str, numbers: int) -> tuple[str, str]:
    """The slow statement stands before this line, as far to the right."""
    margin = line[: len(line) - len(line.lstrip())]
    return line, f"{margin}{_slow(numbers)}\n{line}"


def _collating(collate: str, numbers: int) -> str:
    return f"def collate(samples):\n    {_slow(numbers)}\n    return {collate}(samples)\n\n\ndef main() -> None:"


_COLLATE = "torch.utils.data.default_collate"
_SAMPLE, _BATCH = 20_000, 400_000  # 1 ms and 20 ms in Python 3.12 at 3 GHz
_TOKENS = _before("        pieces = self.once or tokens", _SAMPLE)
#: Two workers keep up with the training unless a sample costs them as much as a step.
_SLOW_SAMPLE = 20 * _SAMPLE
_TOKENS_BY_TWO = _before("        pieces = self.once or tokens", _SLOW_SAMPLE)
_TURNED_BY_TWO = _before("        return self.changed() if", _SLOW_SAMPLE)
_TABLE = "        return torch.nn.functional.cross_entropy(self.layers(rows), labels)"
_EACH_STEP = "    def on_step_end(self, *_: object, **__: object) -> None:\n"
_TABLE_END = "    def on_train_batch_end(self, *_: object) -> None:\n"
_SAVED = "torch.save([model.state_dict(), text.repeat(10)], 'checkpoint.pt')"

PLANTED = (
    Case("Trainer, __getitem__", "trainer_tokens", (_TOKENS,)),
    Case(
        "Trainer, __getitem__ in 2 workers", "trainer_tokens", (_TOKENS_BY_TWO, ("1 if GIVEN.fix", "2 if GIVEN.fix")),
        arguments=("--fix", "workers"),
    ),
    Case(
        "Trainer, collate_fn", "trainer_tokens",
        (
            ("def main() -> None:", _collating("transformers.default_data_collator", _BATCH)),
            ("import torch\n", "import torch\nimport transformers\n"),
            ("train_dataset=Texts(),", "data_collator=collate, train_dataset=Texts(),"),
        ),
        arguments=("--fix", "tokens-once"),
    ),
    Case(
        "Trainer, callback", "trainer_tokens", ((_EACH_STEP, f"{_EACH_STEP}        {_slow(2 * _BATCH)}\n"),),
        arguments=("--fix", "tokens-once"),
    ),
    Case(
        "Trainer, checkpoint each 2 steps", "trainer_tokens",
        (
            (
                _EACH_STEP,
                f"{_EACH_STEP}        if len(self.beats.ends_ns) % 2:\n            # As long as the state of a model of 20 million parameters takes.\n            torch.save([__['model'].state_dict(), torch.ones(20_000_000)], 'checkpoint.pt')  {_MARK}\n",
            ),
        ),
        arguments=("--fix", "tokens-once"),
    ),
    Case("Lightning, training_step", "lightning_table", (_before(_TABLE, _BATCH),), arguments=("--fix", "index-batches")),
    Case(
        "Lightning, callback", "lightning_table", ((_TABLE_END, f"{_TABLE_END}        {_slow(_BATCH)}\n"),),
        arguments=("--fix", "index-batches"),
    ),
    Case(
        "Lightning, collate_fn in 2 workers", "lightning_table",
        (
            ("def main() -> None:", _collating(_COLLATE, 3 * _BATCH)),
            ("shuffle=True, num_workers=1", "shuffle=True, collate_fn=collate, num_workers=2"),
        ),
        arguments=("--fix", "workers"),
    ),
    Case("chars GPT, forward", "chars_gpt", (_before("        batch, length, width = x.shape", _BATCH // 2),)),
    Case("chars GPT, batch of the loop", "chars_gpt", (_before("        places = torch.randint", 4 * _BATCH),)),
    Case("chars GPT, end of a step", "chars_gpt", (_before("        beats.step()", 4 * _BATCH),)),
    Case(
        "chars GPT, checkpoint each 2 steps", "chars_gpt",
        (("        beats.step()", f"        if number % 2:\n            {_SAVED}  {_MARK}\n        beats.step()"),),
    ),
    Case(
        "pictures, __getitem__", "turned_images", (_before("        return self.changed() if", 2 * _SAMPLE),),
        arguments=("--fix", "ready-images"),
    ),
    Case(
        "pictures, __getitem__ in 2 workers", "turned_images",
        (_TURNED_BY_TWO, ('"num_workers": 1', '"num_workers": 2')), arguments=("--fix", "workers"),
    ),
    Case("pictures, forward", "turned_images", (_before("        return torch.relu(x", 2 * _BATCH),), arguments=("--fix", "ready-images")),
    Case("plain loop, end of a step", "gan_collections", (_before("        beats.step()", 2 * _BATCH),), arguments=("--fix", "no-collections")),
    Case("plain loop, collections", "gan_collections", (("            gc.collect()", f"            gc.collect()  {_MARK}"),)),
)  # fmt: skip

#: Those that show on a CPU and cost time. Both statements of slow_input's dataset cost the same, and all of tiny_kernels' loop
#: is slow. An optimizer is made in one place and slow in another: samples can only show where it is slow.
EXAMPLES = (
    Case("slow_input", "slow_input", truth="def __getitem__"),
    Case("tiny_kernels", "tiny_kernels", truth="for tick in inputs"),
    Case("unfused_optimizer", "unfused_optimizer", truth="optimizer.step()", file="training.py"),
    Case("blocking_checkpoints", "blocking_checkpoints", truth="torch.save("),
    Case("exposed_communication", "exposed_communication", truth="torch.distributed.all_reduce", ranks=2),
)


@dataclass(frozen=True)
class Truth:
    """The slow statement, and the function that it is in: lines from 1, both ends included."""

    file: str
    statement: range
    function: range


def truth_of(file: Path, text: str) -> Truth:
    """Where the first statement with this text is, by the syntax tree."""
    source = file.read_text("utf-8")
    line = source[: source.index(text)].count("\n") + 1
    inside = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt) and line in _lines(node)]
    simple = min(inside, key=lambda node: len(_lines(node)))
    function = min((node for node in inside if isinstance(node, ast.FunctionDef)), key=lambda node: len(_lines(node)))
    return Truth(file.name, _lines(simple), _lines(function))


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def verdict(line: Mapping[str, Any], truth: Truth) -> str:
    if Path(line["file"]).name != truth.file:
        return "other"
    if line["line"] in truth.statement:
        return "line"
    return "function" if line["line"] in truth.function else "other"


# --- one recording ---


def planted(case: Case, folder: Path) -> Path:
    """The program with its slow line, in this folder."""
    text = (_PROGRAMS / f"{case.program}.py").read_text("utf-8")
    for old, new in case.edits:
        if text.count(old) != 1:
            raise ValueError(f"{case.program}: {old!r} is there {text.count(old)} times")
        text = text.replace(old, new)
    shutil.copy(_PROGRAMS / "beats.py", folder)
    file = folder / f"{case.program}.py"
    file.write_text(text, "utf-8")
    return file


def _findings(python: str, file: Path, case: Case, scratch: Path) -> list[dict[str, Any]]:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks))
    code = f"import sys; sys.path.insert(0, {str(_ROOT / 'src')!r}); from perfdoctor.cli.main import main; main()"
    diagnosis = scratch / "diagnosis.json"
    done = subprocess.run(
        [
            *(sys.executable, "-c", code, "run", "--quiet", "--no-html", "-o", scratch / "run", "--json", diagnosis, "--"),
            *(python, *(launcher if case.ranks > 1 else ()), file, "--steps", _STEPS, *case.arguments),
        ],
        cwd=file.parent, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    if not diagnosis.exists():
        raise RuntimeError(f"{case.name} was not recorded\n{(done.stdout + done.stderr)[-2000:]}")
    findings: list[dict[str, Any]] = json.loads(diagnosis.read_text("utf-8"))["findings"]
    return findings


def held(findings: list[dict[str, Any]], truth: Truth) -> tuple[str, str]:
    """What the first finding about the program says of the truth, and in words."""
    own = [finding for finding in findings if finding["rule"] not in _OTHERS]
    if not own:
        return "no finding", ""
    first = own[0]
    if not first["lines"]:
        named = next((each for each in own if each["lines"]), None)
        return "no line", f"{first['rule']}; next with one: {_said(named) if named else 'none'}"
    return verdict(first["lines"][0], truth), _said(first)


def _said(finding: Mapping[str, Any]) -> str:
    lines = (
        f"{Path(each['file']).name}:{each['line']} {each['samples']} ({each['share']:.0%})" for each in finding["lines"]
    )
    return f"{finding['rule']}: {', '.join(lines)}"


def _once(python: str, case: Case) -> tuple[str, str]:
    # Not below the folder of a training that is recorded at the same time.
    with tempfile.TemporaryDirectory() as scratch:
        if case in PLANTED:
            folder = Path(scratch) / "program"
            folder.mkdir()
            file = planted(case, folder)
        else:
            file = _EXAMPLES / f"{case.program}.py"
        truth = truth_of(file.with_name(case.file) if case.file else file, case.truth)
        try:
            return held(_findings(python, file, case, Path(scratch)), truth)
        except RuntimeError as error:
            return "not recorded", str(error)


def _chosen(names: list[str]) -> Iterator[tuple[str, Case]]:
    torch = os.environ.get("PERFDOCTOR_TORCH_PYTHON") or sys.executable
    programs = os.environ.get("PERFDOCTOR_PROGRAMS_PYTHON") or torch
    for python, cases in ((programs, PLANTED), (torch, EXAMPLES)):
        yield from ((python, case) for case in cases if not names or any(name in case.name for name in names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a case's name (default: all)")
    parser.add_argument("--rounds", type=int, default=1, help="of each case (default: 1)")
    given = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    for _ in range(given.rounds):
        for python, case in _chosen(given.names):
            result, said = _once(python, case)
            counts.setdefault(case.name, Counter())[result] += 1
            print(f"{case.name}: {result}. {said}", flush=True)
    print()
    for name, results in counts.items():
        print(f"{name:40} {', '.join(f'{result} {count}' for result, count in results.most_common())}")
    good = sum(results["line"] + results["function"] for results in counts.values())
    print(f"\n{good} of {sum(results.total() for results in counts.values())} name the line or its function.")


if __name__ == "__main__":
    main()
