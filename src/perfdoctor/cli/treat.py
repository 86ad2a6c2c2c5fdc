"""`perfdoctor treat`: try the fixes that need no edit on a program, and measure them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from perfdoctor.cli import run_options, say, shared_options
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.rule_patterns import near

if TYPE_CHECKING:
    from perfdoctor.recording.race import Entry
    from perfdoctor.recording.treated_run import TrialProgram, TrialReport
    from perfdoctor.treatments.catalogue import Treatment
    from perfdoctor.treatments.choice import Arm, DiagnosedRun, Machine
    from perfdoctor.treatments.records import TreatResult
    from perfdoctor.treatments.session import Session

_BUDGET = regex(r"^(\d+(?:\.\d+)?)(s|m|h)?$")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_INTERRUPTED = 128 + 2


def _print_fixes(wanted: bool) -> None:
    if wanted:
        from perfdoctor.treatments import catalogue

        for each in catalogue.shipped().values():
            say.line(f"{each.name:22}{each.title}")
        raise typer.Exit


def treat(
    *,
    command: run_options.Command,
    budget: Annotated[str, typer.Option(metavar="TIME", help="How long trials may take: 90s, 10m, 2h.")] = "10m",
    only: Annotated[str | None, typer.Option(metavar="RULE,…", help="Only fixes for findings of these rules.")] = None,
    fix: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="Only these fixes, whatever is found; nothing is diagnosed.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--from", metavar="RUN", help="Take the findings of this run folder.")
    ] = None,
    treatments: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also fixes of your own, one Python file each.")
    ] = None,
    list_: Annotated[  # noqa: ARG001 printed by its callback
        bool,
        typer.Option("--list", help="Print the fixes that there are, and stop.", is_eager=True, callback=_print_fixes),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="The folder of results.",
            show_default="perfdoctor-runs/<time>-<program>-treat",
        ),
    ] = None,
    cwd_copy: Annotated[
        bool, typer.Option("--cwd-copy", help="Run each trial in a copy of the working folder, removed afterwards.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="A variable of each trial; {trial} is its number."),
    ] = None,
    stop: Annotated[
        bool, typer.Option("--stop/--no-stop", help="End each run after enough steps, or let it finish.")
    ] = True,
    in_turn: Annotated[
        bool, typer.Option("--in-turn", help="Start no two programs at once: each run alone, one behind the other.")
    ] = False,
    bitwise: Annotated[
        bool, typer.Option("--bitwise", help="Also hold the parameters after the last step against each other.")
    ] = False,
    accept_numerics: Annotated[
        bool, typer.Option("--accept-numerics", help="Also keep fixes of another precision, or another batch.")
    ] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the order of the trials.")] = 0,
    no_html: shared_options.NoHtml = False,
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write treat.json there; - is standard output.")
    ] = None,
    quiet: shared_options.Quiet = False,
    verbose: shared_options.Verbose = False,
) -> None:
    """Try fixes that need no edit on COMMAND, and measure them.

    The program is run many times, in turn untreated and with a fix: what it writes it writes each time. Its own files
    are not changed. What is measured to help is kept.
    """
    from perfdoctor.treatments import catalogue

    known = catalogue.shipped()
    if treatments is not None:
        known |= catalogue.read(treatments)
    asked = Asked(
        tuple(command), seconds(budget), _rules(_words(only)), _fixes(_words(fix), known), run, cwd_copy,
        _variables(env or []), stop, bitwise, accept_numerics, seed, quiet, verbose, in_turn,
    )  # fmt: skip
    _check_command(command)
    raise typer.Exit(Treating(asked, known, output).to_the_end(json, no_html=no_html))


class Asked(msgspec.Struct, frozen=True):
    """What was asked for."""

    command: tuple[str, ...]
    budget_s: float
    only: tuple[str, ...]
    fixes: tuple[str, ...]
    run: Path | None
    cwd_copy: bool
    variables: dict[str, str]
    stop: bool
    bitwise: bool
    accept_numerics: bool
    seed: int
    quiet: bool
    verbose: bool = False
    in_turn: bool = False


def seconds(text: str) -> float:
    """Seconds of a text like `90s`, `10m` or `2h`; without a unit, seconds. Raises BadParameter."""
    found = _BUDGET.match(text)
    if not found:
        raise typer.BadParameter(f"{text!r} is no time: give 90s, 10m or 2h.", param_hint="--budget")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(each.strip() for each in (text or "").split(",") if each.strip())


def _rules(names: tuple[str, ...]) -> tuple[str, ...]:
    """The ids of the rules that these ids or patterns name. Raises BadParameter where one names none."""
    if not names:
        return ()
    from perfdoctor.cli.rules import chosen
    from perfdoctor.vocabulary.rulebook import load_rules

    return tuple(rule.id for rule in chosen(names, load_rules()))


def _fixes(names: tuple[str, ...], known: Mapping[str, Treatment]) -> tuple[str, ...]:
    """The names, each of a fix that is `known`. Raises BadParameter."""
    for name in names:
        if name not in known:
            nearest = near(name, known, "perfdoctor treat --list")
            raise typer.BadParameter(f"there is no fix {name!r}. {nearest}", param_hint="--fix")
    return names


def _variables(given: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    wrong = next((name for name, equals, _ in pairs if not equals or not name), None)
    if wrong is not None:
        raise typer.BadParameter(f"{wrong!r} is no NAME=VALUE.", param_hint="--env")
    return {name: value for name, _, value in pairs}


def _check_command(command: Sequence[str]) -> None:
    from perfdoctor.recording.launch import program

    if trouble := program.trouble(command[0]):
        say.failure(trouble.what, trouble.do)
        raise typer.Exit(trouble.code)


class Treating:
    """One `perfdoctor treat`: from the diagnosis to the reports."""

    def __init__(self, asked: Asked, known: dict[str, Treatment], output: Path | None) -> None:
        from perfdoctor.recording.launch import program
        from perfdoctor.recording.treated_run import TrialProgram
        from perfdoctor.system.run_folder import RUNS, free_name

        self.asked, self.known = asked, known
        environment = dict(os.environ)
        self.inspected = program.inspect(asked.command, environment)
        if self.inspected.shut_out:
            raise PerfdoctorError(
                f"python {self.inspected.shut_out} ignores PYTHONPATH or sitecustomize: no fix can be tried",
                do=f"Leave out {self.inspected.shut_out}.",
            )
        self.program: TrialProgram = TrialProgram(
            asked.command, environment, Path.cwd(), asked.cwd_copy, asked.variables
        )
        self.folder = (output or free_name(Path(RUNS), f"{self.inspected.name}-treat")).absolute()
        self.trials = 0

    def to_the_end(self, json: str | None, *, no_html: bool) -> int:
        """Make the trials and write the reports; the exit code."""
        from perfdoctor.treatments.session import Failed

        try:
            (self.folder / "trials").mkdir(parents=True)
        except FileExistsError:
            raise UsageError(f"{self.folder} has trials already", do="Name another folder with -o DIR.") from None
        self._say(f"trials in {self.folder}; what the program writes it writes in each of them")
        run, code = self.diagnosed()
        if run is None:
            return code
        machine = self.machine(run)
        from perfdoctor.treatments.choice import arms

        chosen, left_out = arms(
            self.known, run.findings, machine, only=self.asked.only, fixes=self.asked.fixes,
            own=self.program.environment, given=self.asked.variables,
        )  # fmt: skip
        session, failed_with = self.session(chosen, machine), 0
        try:
            if chosen:
                session.go()
        except Failed as failed:
            printed = self.folder / "trials" / str(self.trials)
            say.failure(f"the program fails without any fix: {failed.report.why}", f"What it printed is in {printed}")
            failed_with = failed.report.code or 1
            if not session.untreated:
                return failed_with
        result = self._result(session, machine, left_out)
        self._remember(result, machine)
        self._write(result, json, no_html=no_html)
        return _INTERRUPTED if result.is_interrupted else failed_with

    def _say(self, text: str) -> None:
        if not self.asked.quiet:
            say.note(text)

    # --- what is known before ---

    def diagnosed(self) -> tuple[DiagnosedRun | None, int]:
        """The findings: of the run that was given, else of a first run; none are needed where fixes are named."""
        from perfdoctor.treatments.choice import DiagnosedRun, diagnosed

        if self.asked.fixes and self.asked.run is None:
            return DiagnosedRun(), 0
        folder, code = self.asked.run, 0
        if folder is None:
            folder = self.folder / "diagnosis"
            code = self._record(folder)
        file = folder / "diagnosis.json" if folder.is_dir() else folder
        try:
            return diagnosed(file.read_bytes()), 0
        except (OSError, msgspec.MsgspecError) as error:
            if self.asked.run is None and code:
                printed = self.folder / "diagnosis.log"
                say.failure(
                    f"the program failed with exit code {code} when it was diagnosed",
                    f"What it printed is in {printed}",
                )
                return None, code
            raise PerfdoctorError(
                f"{file} is no diagnosis: {error}", do="Name a folder of perfdoctor run, or leave --from out."
            ) from error

    def _record(self, folder: Path) -> int:
        """Record and diagnose the program as `perfdoctor run` does; its exit code."""
        from perfdoctor.recording.launch import program_run
        from perfdoctor.recording.rerun import in_folder, output_into
        from perfdoctor.recording.treated_run import working_folder

        self._say("diagnosing it first")
        own = [sys.executable, "-m", "perfdoctor", "run", "--no-html", "--stop-after-steps", "-o", str(folder), "--"]
        placed = {name: value.replace("{trial}", "0") for name, value in self.asked.variables.items()}
        environment = {**self.program.environment, **placed}
        with working_folder(self.program) as where, in_folder(where), output_into(self.folder / "diagnosis.log"):
            ended = program_run.run([*own, *self.asked.command], environment)
        if ended.interrupted_by:
            raise KeyboardInterrupt
        return ended.code

    def machine(self, run: DiagnosedRun) -> Machine:
        from perfdoctor.recording.treated_run import machine_facts
        from perfdoctor.treatments.choice import Machine

        ranks = run.run.world_size or 0
        if ranks < 2 and (not ranks or self.asked.fixes):
            ranks = _launched_ranks(self.asked.command)
        facts: dict[str, Any] = machine_facts()
        return Machine(ranks=ranks, gpu=self._gpu(run), torch=self.inspected.torch, **facts)

    def _gpu(self, run: DiagnosedRun) -> str:
        """The GPU that trials use: a run that was named may be of another machine."""
        from perfdoctor.hardware.generations import NVIDIA, vendor
        from perfdoctor.recording.tools import nvml

        recorded = run.run.gpus[0].name if run.run.gpus else ""
        if not recorded and not self.asked.fixes:
            return ""
        if recorded and (self.asked.run is None or vendor(recorded) not in ("", NVIDIA)):
            return recorded  # NVML knows NVIDIA's alone
        if _hides_gpus({**self.program.environment, **self.asked.variables}):
            return ""
        gpus = nvml.find().gpus
        return gpus[0].name if gpus else ""

    # --- trials ---

    def session(self, chosen: Sequence[Arm], machine: Machine) -> Session:
        from perfdoctor.treatments.session import Session

        return Session(
            self.trial, chosen, budget_s=self.asked.budget_s, cores=machine.cores, seed=self.asked.seed,
            stops=self.asked.stop, accepts_numerics=self.asked.accept_numerics, say=self._say, races=self.race,
            most_at_once=self._most_at_once,
        )  # fmt: skip

    def _most_at_once(self, report: TrialReport) -> tuple[int, str]:
        from perfdoctor.system.memory import available_bytes
        from perfdoctor.treatments.at_once import most_at_once

        if self.asked.in_turn:
            return 1, "--in-turn asked for it"
        return most_at_once(report, available_bytes())

    def trial(
        self,
        arms: Sequence[Arm],
        *,
        end_after: int,
        limit_s: float | None,
        nudge: bool = False,
        dry: Sequence[Arm] = (),
    ) -> TrialReport:
        """Make one trial, as `session.Runs` has it."""
        from perfdoctor.recording.treated_run import run_trial

        made = self.entry(arms, end_after, limit_s, nudge=nudge, dry=dry)
        return self._said(run_trial(made.program, made.order, made.into))

    def race(
        self, many: Sequence[Sequence[Arm]], *, steps: int, end_after: int, limits_s: Sequence[float | None]
    ) -> list[TrialReport]:
        """Make trials at once, as `session.Races` has it."""
        from perfdoctor.recording.race import run_race

        entries = [self.entry(arms, end_after, limit_s) for arms, limit_s in zip(many, limits_s, strict=True)]
        return [self._said(each) for each in run_race(entries, steps=steps, seed=self.asked.seed + self.trials)]

    def entry(
        self, arms: Sequence[Arm], end_after: int, limit_s: float | None, *, nudge: bool = False,
        dry: Sequence[Arm] = (),
    ) -> Entry:  # fmt: skip
        """The next trial."""
        from perfdoctor.recording.race import Entry
        from perfdoctor.recording.treated_run import TrialOrder

        self.trials += 1
        treatments = tuple(
            {"name": arm.name, "file": arm.treatment.file, "values": dict(arm.values), "is_dry": is_dry}
            for is_dry, which in ((False, arms), (True, dry))
            for arm in which
        )
        environment = {name: value for arm in arms for name, value in arm.environment.items()}
        order = TrialOrder(self.trials, treatments, environment, end_after, limit_s, nudge, self.asked.bitwise)
        return Entry(self.program, order, self.folder / "trials" / str(self.trials))

    def _said(self, report: TrialReport) -> TrialReport:
        if self.asked.verbose:
            self._say(f"{report.wall_s:.1f} s; other programs used {report.others:.1f} cores meanwhile")
        return report

    # --- results ---

    def _result(self, session: Session, machine: Machine, left_out: dict[str, str]) -> TreatResult:
        from perfdoctor import __version__
        from perfdoctor.system.masking import masked_command

        result = session.result()
        result.perfdoctor, result.command = __version__, masked_command(self.asked.command)
        result.device = machine.gpu or "cpu"
        result.left_out = {**left_out, **result.left_out}
        return result

    def _remember(self, result: TreatResult, machine: Machine) -> None:
        """Say of each fix what was measured here before, and store what was measured now."""
        from perfdoctor.cli import history
        from perfdoctor.history.promises import in_words, size_class

        earlier = history.earlier_promises(machine.kind)
        size, rows = size_class(result.parameter_bytes), []
        for row in result.rows:
            row.measured_before = in_words([each for each in earlier if each["fix"] == row.fix])
            if row.verdict == "nothing to change":
                continue
            ranges = {"promised": row.promised, "measured": row.measured}
            cases = {
                f"{what}_{case}": getattr(known, case) if known else None
                for what, known in ranges.items()
                for case in ("low", "likely", "high")
            }
            rows.append({
                "rule": row.rule, "fix": row.fix, "machine": machine.kind, "torch": result.torch, "size": size, **cases,
                "pairs": row.pairs, "verdict": row.verdict, "source": "treat",
            })  # fmt: skip
        history.save_promises(rows, quiet=self.asked.quiet)

    def _write(self, result: TreatResult, json: str | None, *, no_html: bool) -> None:
        from perfdoctor.report.terminal_text import Terminal
        from perfdoctor.report.treated import html, markdown, terminal, words

        document = html.json(result)
        (self.folder / "treat.json").write_bytes(document)
        (self.folder / "treat.md").write_text(markdown.render(result), "utf-8")
        if not no_html:
            (self.folder / "treat.html").write_text(html.render(result), "utf-8")
        if json == "-":
            say.document(document.decode())
        elif json is not None:
            Path(json).write_bytes(document)
        if self.asked.quiet and json != "-":
            say.line(words.verdict(result))
        elif json != "-":
            terminal.render(result, Terminal())
        self._say(f"results are in {self.folder}")


def _hides_gpus(environment: Mapping[str, str]) -> bool:
    """Does CUDA show the program no GPU? NVML, which says what there is, does not ask."""
    shown = environment.get("CUDA_VISIBLE_DEVICES")
    return shown is not None and shown.split(",")[0].strip() in ("", "-1")


def _launched_ranks(command: Sequence[str]) -> int:
    """The ranks that a launcher's own option asks for; 0 where it does not say how many there are altogether."""
    for word, following in zip(command, [*command[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name.replace("_", "-") in ("--nproc-per-node", "--num-processes"):
            number = value or following
            return int(number) if number.isdecimal() and int(number) > 1 else 0  # of one each there may be several
    return 0
