"""A `perfdoctor treat` for people: terminal, Markdown, HTML."""
