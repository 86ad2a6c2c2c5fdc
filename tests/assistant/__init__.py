"""Tests of perfdoctor.assistant: a package, so that benchmarks/assistant.py does not take its name."""
