"""How does a tool's file become a Timeline? One file per format; no other room knows the tools' names."""
