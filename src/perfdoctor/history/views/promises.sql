select run_id, recorded_at, program, position, rule, title, confidence, round(low_ns / 1e6, 3) as low_ms,
  round(likely_ns / 1e6, 3) as likely_ms, round(high_ns / 1e6, 3) as high_ms, round(step_ns / 1e6, 3) as step_ms,
  speedup, symptom_of
from findings join runs on runs.id = run_id
