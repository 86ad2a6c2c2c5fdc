"""What can be typed next? Rules with their titles, GPUs, passes: for the shell's completion, which must be fast."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from perfdoctor.patterns import regex

#: The environment variable with which the shell requests completions.
VARIABLE = "_PERFDOCTOR_COMPLETE"
_TITLE = regex(r'^title *= *"(.*)"$', re.MULTILINE)
_ID = regex(r'^id *= *"([a-z][a-z0-9-]*/[a-z][a-z0-9-]*)"', re.MULTILINE)
_ACTION = regex(r"^action *=", re.MULTILINE)
_PASSES = {
    "auto": "what this machine supports",
    "torch": "torch.profiler",
    "nsys": "Nsight Systems",
    "ncu": "Nsight Compute, after one of the others",
}
#: Trackers by the package that each needs, as it is imported and installed.
TRACKERS = {"mlflow": "MLflow", "wandb": "Weights & Biases", "tensorboard": "TensorBoard, in the folder runs"}

Offer = tuple[str, str]


def rules(ctx: Any, incomplete: str) -> list[Offer]:
    """Offers for a rule: ids with titles, of ours and of the folders of rules that this line names."""
    return [(name, title) for name, title, _ in (*_rules(), *_own(ctx)) if name.startswith(incomplete)]


def conditions(ctx: Any, incomplete: str) -> list[Offer]:
    """Offers for `--fail-on`: `any`, and the rules."""
    return [*_fitting([("any", "any finding at all")], incomplete), *rules(ctx, incomplete)]


def questions(ctx: Any, incomplete: str) -> list[Offer]:
    """Offers for `--what-if` behind its last comma: what can be simulated."""
    sizes = [("batch=2x", "twice the batch"), ("ranks=8", "on eight ranks"), ("synthetic-data", "without a loader")]
    before, word = _last(incomplete)
    known = (*_rules(), *_own(ctx))
    offered = [*((name, title) for name, title, action in known if action), *sizes]
    return [(before + name, title) for name, title in _fitting(offered, word)]


def passes(incomplete: str) -> list[Offer]:
    """Offers for `--passes` behind its last comma: what is not named yet."""
    before, word = _last(incomplete)
    left = [
        offer for offer in _PASSES.items() if offer[0] not in before.split(",") and (offer[0] != "auto" or not before)
    ]
    return [(before + name, what) for name, what in _fitting(left, word)]


def trackers(incomplete: str) -> list[Offer]:
    """Offers for `--log`."""
    return _fitting(TRACKERS.items(), incomplete)


def gpus(incomplete: str) -> list[Offer]:
    """Offers for `--gpu`: names that need no quotes."""
    from perfdoctor.hardware.peaks import short_names

    return _fitting(short_names().items(), incomplete)


def peaks(incomplete: str) -> list[Offer]:
    """Offers for `--peak`, up to the number."""
    from perfdoctor.hardware.peaks import SETTABLE

    units = {"memory": "bytes/s", "host_link": "bytes/s, one way"}
    return _fitting(((f"{name}=", units.get(name, "FLOP/s, dense")) for name in SETTABLE), incomplete)


def skip_rich() -> None:
    """Keep typer from rendering help with rich, which takes longer to load than all the rest together."""
    try:
        from typer import _completion_classes
    except ImportError:  # another version of typer: slower, with the same result
        return
    if hasattr(_completion_classes, "_sanitize_help_text"):
        setattr(_completion_classes, "_sanitize_help_text", str)  # noqa: B010 (mypy knows the type of typer's function)


def _fitting(offers: Iterable[Offer], incomplete: str) -> list[Offer]:
    return [offer for offer in offers if offer[0].startswith(incomplete)]


def _last(incomplete: str) -> tuple[str, str]:
    """The text before the word that is typed, and that word: `input-wait, ` and `laun` of `input-wait, laun`."""
    word = re.split(r",\s*", incomplete)[-1]
    return incomplete[: len(incomplete) - len(word)], word


def _rules() -> Iterator[tuple[str, str, bool]]:
    """Id, title, and whether its fix can be simulated; by their lines, ten times as fast as reading the TOML.

    A straight apostrophe would end the string that zsh evaluates.
    """
    from perfdoctor.vocabulary.rulebook import rule_files

    for path in rule_files():
        if found := _described(path):
            yield found


def _own(ctx: Any) -> Iterator[tuple[str, str, bool]]:
    """Id, title and status of each rule in the folders of `--rules` and of the config. No rule is imported."""
    given = (ctx.params if ctx else {}).get
    try:
        places = [Path(place).expanduser() for place in given("own_rules") or ()]
        if config := given("config"):
            from perfdoctor.vocabulary.own_rules import named_in

            places += [Path(config).parent / place for place in named_in(Path(config))]
        for path in (path for place in places for path in sorted(place.glob("*.toml"))):
            if (found := _described(path)) and (stated := _ID.search(path.read_text("utf-8"))):
                yield stated[1], *found[1:]
    except Exception:  # noqa: BLE001 a wrong line is completed as far as it is right
        return


def _described(path: Path) -> tuple[str, str, bool] | None:
    text = path.read_text("utf-8")
    title = _TITLE.search(text)
    return (path.stem, title[1].replace("'", "’"), bool(_ACTION.search(text))) if title else None
