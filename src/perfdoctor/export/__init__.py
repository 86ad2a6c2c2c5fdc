"""The recording in other tools' formats, with what was found in it: one file a format."""
