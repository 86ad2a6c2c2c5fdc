"""How does the recorder get into every Python of the user's command, without an edit?

This folder stands in front of PYTHONPATH, and Python imports `sitecustomize` at its start. It arms the recorder for the
moment in which torch is imported, takes itself out of `sys.path`, and hands over to the `sitecustomize` that would have
run without it. In a Python that never imports torch nothing else happens.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _arm():
    """Nothing that goes wrong here may reach the program."""
    try:
        if "PERFDOCTOR_AGENT" in os.environ:
            from perfdoctor_agent import imports

            imports.watch()
    except Exception:
        pass
    sys.path[:] = [path for path in sys.path if path != _HERE]


def _hand_over():
    """Run the user's own `sitecustomize`, under its own name; what it raises, `site` reports as it always does."""
    # Python's own finder and maker of modules, without importing importlib for them: each Python of the command would
    # pay milliseconds, and Debian's has a sitecustomize, if an empty one.
    finder = next((finder for finder in sys.meta_path if getattr(finder, "__name__", "") == "PathFinder"), None)
    spec = finder and finder.find_spec("sitecustomize", sys.path)
    if not spec or spec.loader is None:
        return
    module = sys.modules["_frozen_importlib"].module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_arm()
_hand_over()
