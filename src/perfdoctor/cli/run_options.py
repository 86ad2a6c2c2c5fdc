"""Which options has `perfdoctor run` alone?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfdoctor.cli import completion
from perfdoctor.system.run_folder import RUNS

Command = Annotated[
    list[str],
    typer.Argument(help="The training, as you would start it; the -- before it may be left out.", metavar="COMMAND"),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="The run folder.", show_default=f"{RUNS}/<time>-<program>"),
]
Passes = Annotated[
    str,
    typer.Option(
        help="auto, or some of torch, nsys, ncu: the program runs once for each.",
        metavar="auto|NAMES",
        autocompletion=completion.passes,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        min=1, help="Record exactly so many steps; fewer if the program makes fewer.", metavar="N",
        show_default="10 to 100, until 1.0 s are recorded",
    ),
]  # fmt: skip
SkipSteps = Annotated[int, typer.Option(min=1, help="Steps to skip before them.", metavar="N")]
Stop = Annotated[
    bool | None,
    typer.Option(
        "--stop-after-steps/--keep-going",
        help="End the program when its steps are recorded; or let it go on, with --passes torch for record-now.",
        show_default="stop only if there are several passes",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=1, help="Seconds a pass may take: then it is ended.", metavar="SECONDS",
        show_default="no limit; 900 for ncu",
    ),
]  # fmt: skip
Stacks = Annotated[bool, typer.Option("--stacks", help="Record Python stacks too: slows the program.")]
Sampling = Annotated[
    bool,
    typer.Option(
        "--sampling/--no-sampling", help="Sample Python stacks from outside, where py-spy can: takes 2 % of the cores."
    ),
]
Source = Annotated[
    bool, typer.Option("--source/--no-source", help="Keep the text of your own lines that the stacks name.")
]
Modules = Annotated[bool, typer.Option("--modules/--no-modules", help="Mark the forwards of modules: 1 to 2 µs each.")]
Trial = Annotated[
    bool,
    typer.Option(
        "--trial/--no-trial",
        help="If the training waits for its loader, try workers in a copy of it: it waits 2 s at most.",
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the HTML report here.", show_default="report.html in the folder"),
]
Json = Annotated[
    Path | None,
    typer.Option(
        help="Write the diagnosis here; - is standard output, behind the program's own.",
        metavar="FILE",
        show_default="diagnosis.json in the folder",
    ),
]
NoSave = Annotated[bool, typer.Option("--no-save", help="Store nothing in the history of the project.")]
