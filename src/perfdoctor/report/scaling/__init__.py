"""How is a series over numbers of GPUs shown: in a terminal, as JSON, Markdown and one HTML page? No analysis."""
