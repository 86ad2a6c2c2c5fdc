"""The modules that measure a machine: top-level ones in the user's Python, and here."""

from __future__ import annotations

import sys

from folders import ROOT

FOLDER = ROOT / "src" / "perfdoctor" / "recording" / "measuring"
sys.path.insert(0, str(FOLDER))
from perfdoctor_measuring import all_reduce, apart, document, gpu, processor, timing  # noqa: E402

sys.path.remove(str(FOLDER))

__all__ = ["FOLDER", "all_reduce", "apart", "document", "gpu", "processor", "timing"]
