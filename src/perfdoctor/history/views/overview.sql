select runs.id, recorded_at, project, program, substr(git_commit, 1, 10) as commit_id, git_dirty as dirty, device, gpus,
  world_size, round(coalesce(unrecorded_step_ns, step_ns) / 1e6, 3) as step_ms,
  round(1.0 * p10_ns * coalesce(unrecorded_step_ns, step_ns) / recorded_step_ns / 1e6, 3) as p10_ms,
  round(1.0 * p90_ns * coalesce(unrecorded_step_ns, step_ns) / recorded_step_ns / 1e6, 3) as p90_ms, steps,
  round(100.0 * mfu, 1) as mfu_percent, items, round(items_per_second, 1) as items_per_second,
  round(peak_memory_bytes / 1048576.0, 1) as peak_memory_mib,
  (select rule from findings where run_id = runs.id order by position limit 1) as first_finding,
  (select group_concat(tag, ' ') from tags where run_id = runs.id) as tags,
  (select group_concat(name, ' ') from pins where run_id = runs.id) as pins
from runs order by recorded_at desc, runs.id desc
