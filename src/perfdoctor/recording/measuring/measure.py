"""What do this machine's GPU, memory and links give? Run by the Python that has torch; prints one JSON document.

    python measure.py [--quick] [--processor NAME]

Imports only torch and the standard library. What cannot be measured is listed under `failed`, and the rest goes on. No
more than 2 GB of a GPU's memory is used.
"""

from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from perfdoctor_measuring.document import measured

if __name__ == "__main__":
    words = sys.argv[1:]
    name = words[words.index("--processor") + 1] if "--processor" in words[:-1] else ""
    print(json.dumps(measured(quick="--quick" in words, processor=name)), flush=True)
