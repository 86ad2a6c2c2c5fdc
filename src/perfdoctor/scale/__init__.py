"""How are thousands of ranks diagnosed? Each by itself in parallel; only what is small meets."""
