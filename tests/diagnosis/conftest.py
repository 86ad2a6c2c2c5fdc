"""Here savings keep the ranges that are expected or simulated: how measured ones widen them is a test of its own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def nothing_is_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfdoctor.diagnosis.predicted_saving.spread_of", lambda _: None)
