"""How fast is this machine? Loaded into the user's Python by measure.py, in 3.8 or newer."""
