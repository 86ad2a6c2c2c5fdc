"""Where do the project's own files and the public recordings lie?"""

from __future__ import annotations

from pathlib import Path

from labels import recordings

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
EXAMPLES = ROOT / "examples"
#: Recordings that are not ours to ship: a folder that need not be there. Tests that need them are skipped without.
RECORDINGS = recordings() or ROOT.parent / "shared" / "data"
