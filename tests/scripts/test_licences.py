"""Does the page of licences name all that is installed, and may all of it be installed beside what is not free?"""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path

import licences
import pytest
from folders import ROOT

PAGE = (ROOT / "docs" / "licences.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| \[([^\]]+)\]\(\S+\) \| (.*?) \|", PAGE, re.MULTILINE))


def test_all_that_is_needed_is_on_the_page_and_nothing_else() -> None:
    assert {licences.normal(name) for name in ROWS} == set(licences.needed())


def test_what_only_other_pythons_and_systems_need_is_on_the_page() -> None:
    assert {"tomli", "colorama"} <= set(licences.needed())


def test_what_an_extra_brings_is_not() -> None:
    assert not {"pandas", "s3fs", "arro3-core"} & set(licences.needed())


@pytest.mark.parametrize("name", sorted(ROWS))
def test_each_says_its_licence_and_none_asks_others_to_open_their_source(name: str) -> None:
    assert licences.is_admitted(ROWS[name])


@pytest.mark.parametrize(
    "name", ["", "GPL-3.0-only", "MIT AND LGPL-2.1-or-later", "Mozilla Public License 2.0", "NVIDIA EULA"]
)
def test_others_are_not_admitted(name: str) -> None:
    assert not licences.is_admitted(name)


def stated(tmp_path: Path, *headers: str) -> str:
    folder = tmp_path / "drawn-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.4", "Name: drawn", "Version: 1", *headers]), "utf-8"
    )
    return licences.licence(distribution("rich").at(folder))


def test_an_expression_is_taken_before_words(tmp_path: Path) -> None:
    assert (
        stated(
            tmp_path, "License-Expression: MIT", "License: other", "Classifier: License :: OSI Approved :: BSD License"
        )
        == "MIT"
    )


def test_classifiers_are_taken_where_there_is_no_expression(tmp_path: Path) -> None:
    classifier = "Classifier: License :: OSI Approved ::"
    given = (
        "License: Dual License",
        f"{classifier} BSD License",
        "Classifier: Topic :: Games",
        f"{classifier} ISC License (ISCL)",
    )
    assert stated(tmp_path, *given) == "BSD License, ISC License (ISCL)"


def test_the_text_of_a_licence_is_no_name_of_one(tmp_path: Path) -> None:
    assert stated(tmp_path, "License: " + "Permission is hereby granted " * 9) == ""
