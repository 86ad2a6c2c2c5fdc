select run_id, recorded_at, program, parts.part, round(1.0 * ns / window_ns * recorded_step_ns / 1e6, 3) as ms_per_step,
  round(100.0 * ns / window_ns, 2) as percent
from parts join runs on runs.id = run_id where window_ns > 0
