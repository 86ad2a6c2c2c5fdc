"""The timeline as tables: their rows (`contents`, `links`), a database (`database`), files (`files`), SQL (`query`)."""

from __future__ import annotations

from perfdoctor.export.tables.query import QueryResult, query

__all__ = ["QueryResult", "query"]
