"""Deadlines and retention of jobs: the installation's policy, and the effective values of one job."""
