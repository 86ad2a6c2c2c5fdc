select runs.id as run_id, recorded_at, program, each.key + 1 as step, round(each.value / 1e6, 3) as ms
from runs, json_each(runs.step_times_ns) as each
