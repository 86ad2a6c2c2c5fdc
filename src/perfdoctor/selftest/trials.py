"""How is a training run: plainly, and as a user records it? Each in a process of its own, by the real command line."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from perfdoctor.patterns import regex
from perfdoctor.system import tool_process
from perfdoctor.system.run_folder import ProcessReport, RunFolder, json_object

#: The line in which each example prints its median step, which no two runs share.
MEDIAN_STEP = regex(r"^median step ([\d.]+) ms\n?", re.MULTILINE)
#: A training of a few seconds that takes this long hangs.
TIME_LIMIT_S = 180.0
#: Steps that are recorded, and skipped before: the defaults of `perfdoctor run`.
RECORDED, SKIPPED = 10, 5
#: Long enough for the recorded steps, those before, and as many after.
STEPS = SKIPPED + 2 * RECORDED


class Plain(Struct, frozen=True):
    """A run without perfdoctor. `step_ms` is None where the program printed no median step."""

    code: int
    output: str
    errors: str
    seconds: float

    @property
    def step_ms(self) -> float | None:
        found = MEDIAN_STEP.search(self.output)
        return float(found[1]) if found else None

    @property
    def comparable_output(self) -> str:
        """The output without the line that differs from run to run."""
        return MEDIAN_STEP.sub("", self.output)


class RecordedTrial(Plain, frozen=True):
    """A run under `perfdoctor run`. `diagnosis` is empty where it made none."""

    folder: Path = Path()
    diagnosis: Mapping[str, Any] = field(default_factory=dict)

    @property
    def messages(self) -> str:
        """All that the program and the tools printed: what explains a failure."""
        logs = [*self.folder.glob("nsys/*.log"), *self.folder.glob("ncu/*.log")]
        return "\n".join([self.errors, *(file.read_text("utf-8", "replace") for file in logs)])

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of `perfdoctor run` on its passes."""
        run = RunFolder.open(self.folder)
        return tuple(note for each in run.manifest.passes for note in each.notes) if run else ()

    def reports(self, pass_name: str) -> list[ProcessReport]:
        """The reports of the processes that trained."""
        run = RunFolder.open(self.folder)
        return [each for each in run.reports(pass_name) if each.is_training] if run else []

    def step_ns(self) -> float | None:
        """Step time of the first rank, as diagnosed; None without steps."""
        rows = self.diagnosis.get("time") or [{}]
        step_ns = rows[0].get("step_ns")
        return float(step_ns) if step_ns else None

    def finding(self, rule: str) -> Mapping[str, Any] | None:
        """The finding of this rule, a symptom or a cause."""
        every = []
        for cause in self.diagnosis.get("findings", ()):
            every += [cause, *(each for each in cause.get("symptoms", ()) if isinstance(each, dict))]
        return next((each for each in every if each.get("rule") == rule), None)

    def first_rule(self) -> str:
        """The rule of the first finding about the training; a busy machine comes first, and is no fault of it."""
        rules = (str(each["rule"]) for each in self.diagnosis.get("findings", ()))
        return next((rule for rule in rules if rule != "busy-machine"), "")


class Runner(Struct, frozen=True):
    """Runs commands in `folder`, where run folders go too."""

    folder: Path
    environment: Mapping[str, str]

    def plain(self, command: Sequence[str]) -> Plain:
        began = time.monotonic()
        try:
            done = tool_process.asked(command, TIME_LIMIT_S, self.environment)
        except subprocess.TimeoutExpired:
            return Plain(124, "", f"it still ran after {TIME_LIMIT_S:.0f} s", time.monotonic() - began)
        except OSError as error:
            return Plain(127, "", str(error), time.monotonic() - began)
        return Plain(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def recorded(self, name: str, passes: str, command: Sequence[str], *options: str) -> RecordedTrial:
        """Run the command under `perfdoctor run`, into the folder `name`, which must be new."""
        target = self.folder / name
        words = ["run", "--quiet", "--passes", passes, "--steps", str(RECORDED), "--skip-steps", str(SKIPPED)]
        # The history is of the user's own trainings.
        words += ["--no-save", "--output", str(target)]
        ran = self.plain([*_PERFDOCTOR, *words, *options, "--", *command])
        diagnosis = json_object(target / "diagnosis.json") or {}
        return RecordedTrial(ran.code, ran.output, ran.errors, ran.seconds, target, diagnosis)

    def what_if(self, recorded: RecordedTrial, rule: str) -> Mapping[str, Any]:
        """The prediction for this rule's fix alone; empty where there is none."""
        file = recorded.folder / "what-if.json"
        words = ["analyze", str(recorded.folder), "--no-html", "--quiet", "--what-if", rule, "--json", str(file)]
        self.plain([*_PERFDOCTOR, *words])
        return (json_object(file) or {}).get("prediction") or {}


_PERFDOCTOR = tool_process.own_command("perfdoctor.cli.main")
_KINETO_WARNINGS = "2"  # of its levels verbose, info, warning, error


def environment_of_trials(base: Mapping[str, str]) -> dict[str, str]:
    """The user's environment, with torch.profiler's warnings, which `perfdoctor run` switches off otherwise."""
    return {**base, "KINETO_LOG_LEVEL": _KINETO_WARNINGS}
