"""What were the earlier runs of this project? One row of facts a run, in one SQLite file."""
