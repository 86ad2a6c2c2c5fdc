"""What is bad about it? One file a rule, named like its TOML: metric × threshold → Finding. No sentences here."""
