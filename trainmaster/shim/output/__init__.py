"""Reads the output of programs: which lines are a launcher's own, and why a program failed. Pure."""
