"""Why is this PyTorch training slow, what to change, and how much will it bring?

`import perfdoctor` loads nothing: each public name is taken from `perfdoctor.api` when it is first used. What a
training uses is taken from where it is, and loads no analysis.
"""

__version__ = "0.1.0"
TYPE_CHECKING = False  # as type checkers know it; importing `typing` takes longer than all else here
if TYPE_CHECKING:
    from perfdoctor.api import *

#: What is public: as in `perfdoctor.api`.
__all__ = [
    "Advice", "Bound", "Ceiling", "CheckResult", "CodeLine", "Comparison", "Contribution", "CriticalPath",
    "Derivation", "DerivedInput", "Device", "Diagnosis", "Efficiency", "FindingChange", "Fix", "Frame", "GpuInfo",
    "KernelRow", "Measure", "ModuleCost", "Outcome", "PathPiece", "PerfdoctorError", "PredictedStep", "Prediction",
    "QueryResult", "Range", "Recording", "Roofline", "RooflineRow", "Rows", "Rung", "Saving", "Scaling",
    "ScalingSeries", "Source", "SourceInfo", "Span", "StepStats", "Text", "TimeSplit", "Timeline", "Watch", "analyze",
    "check", "compare", "query", "read", "record", "run", "runs", "scaling", "step", "trend", "watch",
]  # fmt: skip
_IN_A_TRAINING = {"Recording": "recording", "Watch": "watch", "record": "recording", "step": "marks", "watch": "watch"}


if not TYPE_CHECKING:  # else any name would do for type checkers

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'perfdoctor' has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415

        light = _IN_A_TRAINING.get(name)
        module = f"perfdoctor.recording.inside.{light}" if light else "perfdoctor.api"
        found: object = getattr(import_module(module), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
