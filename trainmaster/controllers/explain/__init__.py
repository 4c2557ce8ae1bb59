"""Explains the state of a training job, and what would start one that is waiting. Pure; uses the real scheduler."""
