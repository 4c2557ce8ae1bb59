"""Reconciles TrainJobs: creates the runtime snapshot and the JobSet, and copies the JobSet's state to the status."""
