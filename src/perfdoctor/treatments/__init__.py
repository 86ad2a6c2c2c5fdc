"""Fixes that need no edit of the program, tried on it and measured."""
