"""Why is this PyTorch training slow, what to change, and how much will it bring?

`import perfdoctor` loads nothing: each public name is taken from `perfdoctor.api` when it is first used.
"""

__version__ = "0.1.0"
TYPE_CHECKING = False  # as type checkers know it; importing `typing` takes longer than all else here
if TYPE_CHECKING:
    from perfdoctor.api import (
        Advice,
        Bound,
        CodeLine,
        Comparison,
        Contribution,
        Derivation,
        DerivedInput,
        Device,
        Diagnosis,
        FindingChange,
        Fix,
        Frame,
        GpuInfo,
        KernelRow,
        Measure,
        Outcome,
        PerfdoctorError,
        PredictedStep,
        Prediction,
        Rows,
        Saving,
        Scaling,
        Source,
        SourceInfo,
        Span,
        StepStats,
        Text,
        Timeline,
        TimeSplit,
        analyze,
        compare,
        read,
    )

#: What is public: as in `perfdoctor.api`.
__all__ = [
    "Advice", "Bound", "CodeLine", "Comparison", "Contribution", "Derivation", "DerivedInput", "Device", "Diagnosis",
    "FindingChange", "Fix", "Frame", "GpuInfo", "KernelRow", "Measure", "Outcome", "PerfdoctorError", "PredictedStep",
    "Prediction", "Rows", "Saving", "Scaling", "Source", "SourceInfo", "Span", "StepStats", "Text", "TimeSplit",
    "Timeline", "analyze", "compare", "read",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'perfdoctor' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    found: object = getattr(import_module("perfdoctor.api"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
