"""What does a new rule begin with? Two files that already find something, and a test that passes: words are TODO."""

from __future__ import annotations

import re
from pathlib import Path

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.own_rules.skeletons import DOCUMENT, SKELETONS
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.categories import CATEGORIES
from perfdoctor.vocabulary.own_rules import is_id
from perfdoctor.vocabulary.rulebook import known

#: A field with a remark behind it.
_REMARK = regex(r"^(\w+ = .*?) {2,}# (.*)$", re.MULTILINE)


def write(rule_id: str, folder: Path, category: str) -> list[Path]:
    """The document, the detector and its test. Raises UsageError for an id that is none, and overwrites nothing."""
    if not is_id(rule_id):
        do = "It is NAMESPACE/NAME in lower case: perfdoctor rules new acme/slow-tokenizer"
        raise UsageError(f"{rule_id!r} is no id of a rule", do=do)
    known(category, CATEGORIES, "category")
    name = rule_id.rpartition("/")[2]
    module = name.replace("-", "_")
    skeleton = SKELETONS[category]
    texts = {f"{name}.toml": DOCUMENT, f"{module}.py": skeleton.detector, f"test_{module}.py": skeleton.test}
    files = [folder / file for file in texts]
    if there := next((file for file in files if file.exists()), None):
        raise PerfdoctorError(f"{there} is there already", do="Take another name, or --into another folder.")
    words = {
        **skeleton.words, "@ID@": rule_id, "@NAME@": module, "@FILE@": name, "@CATEGORY@": category,
        "@CATEGORIES@": ", ".join(CATEGORIES),
    }  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in zip(files, texts.values(), strict=True):
            for mark, word in words.items():
                text = text.replace(mark, word)  # noqa: PLW2901
            file.write_text(_REMARK.sub(_aligned, text) if file.suffix == ".toml" else text, "utf-8")
    except OSError as error:
        raise PerfdoctorError(
            f"{folder} cannot be written to: {error.strerror or error}", do="Name another folder with --into."
        ) from error
    return files


def _aligned(field: re.Match[str]) -> str:
    return f"{field[1]:<42} # {field[2]}"


def finds(category: str) -> str:
    """What such a rule finds as it is begun, in words."""
    return SKELETONS[category].finds
