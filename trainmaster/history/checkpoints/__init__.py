"""Checkpoints of jobs, as their programs left them. Nothing in them is trusted. All of it blocks."""
