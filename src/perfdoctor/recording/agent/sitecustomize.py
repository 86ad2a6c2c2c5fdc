"""How is the agent loaded into every Python of the user's command, without a change to the program?

This folder is first in PYTHONPATH, and Python imports `sitecustomize` at its start. It prepares the agent to start when
torch is imported, removes itself from `sys.path`, and runs the `sitecustomize` that would have run without it. In a
Python that never imports torch nothing else happens.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _arm():
    """Wait for torch. No error in here may reach the program."""
    try:
        if "PERFDOCTOR_AGENT" in os.environ:
            from perfdoctor_agent import imports

            imports.watch(_failed)
    except Exception as error:
        _failed(error)
    sys.path[:] = [path for path in sys.path if path != _HERE]


def _failed(error, torch=""):  # noqa: ANN001 nothing of typing is loaded here
    """Report why the agent of this process did not start. `torch`: its version. The program runs on without the agent.

    This is what works in a Python of any age, and with an agent of which nothing can be imported.
    """
    try:
        import json

        settings = json.loads(os.environ["PERFDOCTOR_AGENT"])
        why = "perfdoctor's agent did not start: {}: {}".format(type(error).__name__, error)  # noqa: UP032 of any age
        facts = {"pass": settings["pass"], "pid": os.getpid(), "torch": torch, "state": "failed", "notes": [why]}
        path = os.path.join(settings["reports"], "{}-{}.json".format(settings["pass"], os.getpid()))
        with open(path + ".tmp", "w") as file:
            json.dump(facts, file)
        os.replace(path + ".tmp", path)
    except Exception:
        pass


def _hand_over():
    """Run the user's own `sitecustomize` under its own name; `site` reports its errors as usual."""
    # Python's own finder and module_from_spec, without importing importlib, which would take milliseconds in each
    # Python of the command: Debian has an (empty) sitecustomize.
    finder = next((finder for finder in sys.meta_path if getattr(finder, "__name__", "") == "PathFinder"), None)
    spec = finder and finder.find_spec("sitecustomize", sys.path)
    if not spec or spec.loader is None:
        return
    module = sys.modules["_frozen_importlib"].module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_arm()
_hand_over()
