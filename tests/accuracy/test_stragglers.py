"""Does the replay of all ranks say of public traces what their authors published?"""

from __future__ import annotations

import pytest
import stragglers
from folders import public


@pytest.mark.recordings
def test_the_last_stage_of_a_public_job_makes_its_steps_long_and_no_worker_does() -> None:
    result = stragglers.result_of(public("stragglers/trace-ST.parquet"))
    assert result["step_s"] == pytest.approx(2.173, rel=0.001)
    assert result["ideal_s"] == pytest.approx(1.843, rel=0.001)
    first = result["stages"][0]
    assert first["stage"] == 3
    assert first["part"] == pytest.approx(1.22, abs=0.01)
    assert result["ranks"][0]["part"] == pytest.approx(0.03, abs=0.01)
