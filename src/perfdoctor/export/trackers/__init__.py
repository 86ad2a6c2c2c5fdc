"""A diagnosis for experiment trackers: one module a tracker, run in a process of its own (`__main__`)."""
