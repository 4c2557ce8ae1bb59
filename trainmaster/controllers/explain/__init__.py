"""Explains the state of a TrainJob, and what would start one that is waiting. Pure; uses the real scheduler."""
