"""How does a tool's file become a Timeline? One file per format; no other room knows the tools' names."""

from perfdoctor import model  # noqa: F401 numpy with one thread, before a reader imports it: else nothing can be forked
