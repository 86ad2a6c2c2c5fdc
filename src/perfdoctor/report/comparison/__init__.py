"""How is a comparison shown: in a terminal, as JSON, Markdown and one HTML page? No analysis."""
