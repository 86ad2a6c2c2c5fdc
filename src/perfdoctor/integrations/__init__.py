"""How does a trainer record a window of its steps? One module for each trainer, which it imports itself.

    transformers   PerfdoctorCallback     lightning   PerfdoctorCallback
    ignite         PerfdoctorHandler      accelerate  record

Each records on all ranks from a given step on, into a new run folder in the trainer's output folder, and there lies the
report. All take what `perfdoctor.record` takes.
"""
