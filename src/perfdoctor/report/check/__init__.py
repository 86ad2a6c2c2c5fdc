"""How is a check against a baseline shown: to people, and to the machines of a CI? No analysis."""
