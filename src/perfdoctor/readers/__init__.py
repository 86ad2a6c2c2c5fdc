"""How does a foreign file become a Timeline? One file a format; nobody else knows foreign names."""
