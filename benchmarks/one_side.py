"""What does one checkout's code diagnose? A worker of `same_diagnosis.py`, run with that checkout's `src` on PYTHONPATH.

Reads one question a line from standard input, as JSON: `paths`, `to` (the file to write the answer into) and, where they
are asked, `what_if`, `range` and `steps`, worded as on the command line. Writes the answer and, as one line on standard
output, how many seconds of processor time the diagnosis took. It must run with old code and with new: every function of
perfdoctor is looked for where it lies now and where it lay before.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: Each function that is needed, as module:name: where it lies now, then where it lay.
PLACES: Mapping[str, Sequence[str]] = {
    "read": ("perfdoctor.readers.open:read", "perfdoctor.ingest.reader:read"),
    "diagnose": ("perfdoctor.diagnosis.engine:diagnose", "perfdoctor.diagnose:diagnose"),
    "load_rules": ("perfdoctor.vocabulary.rulebook:load_rules", "perfdoctor.rulebook:load_rules"),
    "render": ("perfdoctor.report.json_report:render",),
    "questions": ("perfdoctor.diagnosis.questions:questions", "perfdoctor.cli.what_if:questions"),
    "selection": (
        "perfdoctor.cli.shared_options:selection",
        "perfdoctor.cli.selection_options:selection",
        "perfdoctor.cli.part_options:selection",
        "perfdoctor.cli.part_options:look",
        "perfdoctor.cli.looking:look",
    ),
    "PerfdoctorError": ("perfdoctor.errors:PerfdoctorError",),
}


def found(name: str) -> Any:
    """A function of this checkout's perfdoctor. SystemExit where it is in none of its places."""
    for place in PLACES[name]:
        module, _, attribute = place.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ModuleNotFoundError, AttributeError):
            continue
    sys.exit(f"{name} is in none of {', '.join(PLACES[name])}: add its place to PLACES in {__file__}")


def import_first() -> None:
    """What the engine imports when it needs it: otherwise the first recording would pay for it.

    SystemExit where it is another checkout's code.
    """
    for name in PLACES:
        found(name)
    import perfdoctor.detectors as every  # noqa: PLC0415  whose they are depends on PYTHONPATH

    if not Path(every.__path__[0]).is_relative_to(os.environ["PYTHONPATH"]):
        sys.exit(f"{every.__path__[0]} is asked instead of {os.environ['PYTHONPATH']}")
    for module in pkgutil.walk_packages(every.__path__, f"{every.__name__}."):
        importlib.import_module(module.name)


def diagnosis_of(question: Mapping[str, Any]) -> str:
    """The JSON report. Raises what the code raises."""
    rules = found("load_rules")()
    asked: dict[str, Any] = {}
    if question.get("what_if"):
        asked["what_if"] = found("questions")(question["what_if"], rules)
    if question.get("range") or question.get("steps"):
        part = found("selection")
        name = "selection" if part.__name__ == "selection" else "look"  # what `diagnose` calls it, now and before
        asked[name] = part(question.get("range"), question.get("steps"))
    timeline = found("read")([Path(path) for path in question["paths"]])
    every = list(rules.values()) if isinstance(rules, Mapping) else list(rules)
    return str(found("render")(found("diagnose")(timeline, every, **asked)))


def answered(work: Callable[[], str]) -> dict[str, Any]:
    """The report, or the error with its words; anything else that is raised is an answer too, by its type."""
    try:
        return {"report": json.loads(work())}
    except found("PerfdoctorError") as error:
        return {"refused": {"type": type(error).__name__, "what": error.what, "do": error.do}}
    except Exception as error:  # noqa: BLE001 the other side must raise the same
        return {"raised": {"type": type(error).__name__, "error": str(error)}}


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the code prints must not pass for a reply
    import_first()
    for line in sys.stdin:
        question = json.loads(line)
        gc.collect()
        begun = time.process_time()
        answer = answered(lambda question=question: diagnosis_of(question))
        taken_s = time.process_time() - begun
        Path(question["to"]).write_text(json.dumps(answer), "utf-8")
        print(taken_s, file=replies, flush=True)


if __name__ == "__main__":
    main()
