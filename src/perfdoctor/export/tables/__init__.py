"""The timeline as tables: their rows (`contents`, `links`), a database (`database`), files (`files`), SQL (`query`)."""
