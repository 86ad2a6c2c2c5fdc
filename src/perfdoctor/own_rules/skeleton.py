"""What does a new rule begin with? Two files that already find something, and a test that passes: words are TODO."""

from __future__ import annotations

from pathlib import Path
from string import Template

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.vocabulary.categories import CATEGORIES
from perfdoctor.vocabulary.own_rules import is_id

#: What a new rule finds before anybody changes it.
FINDS = "time in which the GPU waits in a range of one name"

#: What its files begin as, with $words.
_TEMPLATES = Path(__file__).with_name("new_rule")


def write(rule_id: str, folder: Path) -> list[Path]:
    """Write the document, the detector and its test into `folder`; return their paths.

    Raises UsageError if `rule_id` is no id, and overwrites nothing.
    """
    if not is_id(rule_id):
        do = "It is NAMESPACE/NAME in lower case: perfdoctor rules new acme/slow-tokenizer"
        raise UsageError(f"{rule_id!r} is no id of a rule", do=do)
    name = rule_id.rpartition("/")[2]
    module = name.replace("-", "_")
    templates = {f"{name}.toml": "document.toml", f"{module}.py": "detector.py.txt", f"test_{module}.py": "test.py.txt"}
    files = [folder / file for file in templates]
    if there := next((file for file in files if file.exists()), None):
        raise PerfdoctorError(f"{there} is there already", do="Take another name, or --into another folder.")
    words = {"id": rule_id, "name": name, "module": module, "categories": ", ".join(CATEGORIES)}
    texts = [Template((_TEMPLATES / each).read_text("utf-8")).substitute(words) for each in templates.values()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, "utf-8")
    except OSError as error:
        raise PerfdoctorError(
            f"{folder} cannot be written to: {error.strerror or error}", do="Name another folder with --into."
        ) from error
    return files
