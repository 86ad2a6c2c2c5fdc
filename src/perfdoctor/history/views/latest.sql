select * from runs where not exists (
  select 1 from runs as later where later.recording = runs.recording and later.part is runs.part
    and (later.stored_at, later.id) > (runs.stored_at, runs.id))
