"""How does the agent come into a program that runs already, and out of it again? In a thread that others started.

`perfdoctor attach` lets this file run in a thread of the program, with its settings as `GIVEN`. The agent's package
gets its name in `sys.modules` and no place in `sys.path`, and is taken out again at the end.
"""


def _run(text):  # noqa: ANN001 nothing of typing is loaded here
    import json
    import os

    given = json.loads(text)
    try:
        # The words that start this may be run twice.
        os.close(os.open(given["started"], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except OSError:
        return
    try:
        _attach(given)
    except BaseException as error:
        _failed(given["agent"], error)
    _tidy(os, given["files"])


def _tidy(os, files):  # noqa: ANN001
    """Remove what was made for this, as whoever made it may have been killed."""
    import contextlib

    own = os.path.dirname(files[0])
    folders = [(os.rmdir, each) for each in (own, os.path.dirname(own))]
    for remove, path in [(os.unlink, each) for each in files] + folders:
        with contextlib.suppress(OSError):  # whoever made it was quicker, or another rank's are there
            remove(path)


def _attach(given):  # noqa: ANN001
    import gc
    import importlib
    import importlib.util
    import os
    import sys

    package, before = "perfdoctor_agent", set(sys.modules)
    folder = os.path.join(given["folder"], package)
    known = sys.modules.get(package)
    if known is None:
        spec = importlib.util.spec_from_file_location(
            package, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        module = importlib.util.module_from_spec(spec)
        module.perfdoctor_source = given["source"]
        sys.modules[package] = module
        spec.loader.exec_module(module)
    elif getattr(known, "perfdoctor_source", "") == given["source"]:
        known.__path__[:] = [folder]  # the copy that it came from is gone
    elif hasattr(known, "perfdoctor_source") or list(known.__path__) != [folder]:
        raise RuntimeError("another version of it has been in this process")
    try:
        importlib.import_module(package + ".attached").attach(given)
    finally:
        # Modules hold each other in circles. Where nobody collects those, the next attach finds the modules again.
        if gc.isenabled():
            for name in [each for each in sys.modules if each == package or each.startswith(package + ".")]:
                if name not in before:
                    del sys.modules[name]


def _failed(agent, error):  # noqa: ANN001
    """Report why the agent did not start, or did not go on, whatever else fails."""
    try:
        import json
        import os
        import sys

        why = f"perfdoctor's agent did not start: {type(error).__name__}: {error}"
        version = str(getattr(sys.modules.get("torch"), "__version__", ""))
        facts = {"pass": agent["pass"], "pid": os.getpid(), "torch": version, "state": "failed", "notes": [why]}
        path = os.path.join(agent["reports"], "{}-{}.json".format(agent["pass"], os.getpid()))
        with open(path + ".tmp", "w") as file:
            json.dump(dict(facts, ended=True), file)
        os.replace(path + ".tmp", path)
    except BaseException:
        pass


_run(GIVEN)  # noqa: F821 what runs this file sets it
