"""The recording in formats of other tools, with the findings as tracks: one module a format."""
