"""Reconciles JobSets: headless Service, Jobs, restarts of the whole gang, Completed and Failed. Embedded mode only."""
