"""What runs inside the user's processes: the standard library, and the torch that the program itself has imported.

Three rules hold for every line in here. Nothing is raised into the program. Nothing is written to its output. After
the recorded steps nothing remains but a few bytes of memory.
"""
