"""What does `Diagnosis.what_if` return?"""

from __future__ import annotations

from perfdoctor.records import predictions


class Prediction(predictions.Prediction, frozen=True, kw_only=True):
    __doc__ = predictions.Prediction.__doc__

    @classmethod
    def of(cls, found: predictions.Prediction) -> Prediction:
        """The same, as other programs see it."""
        return cls(**{name: getattr(found, name) for name in found.__struct_fields__})

    def _repr_html_(self) -> str:
        """What a notebook shows: the step after each fix, and the range of the last. It loads nothing."""
        from perfdoctor.report import notebook  # noqa: PLC0415

        return notebook.render_prediction(self)
