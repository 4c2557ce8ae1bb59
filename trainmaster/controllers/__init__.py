"""Reconcilers, one subpackage per kind: pure functions from a view to a plan."""
