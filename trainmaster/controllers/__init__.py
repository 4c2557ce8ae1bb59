"""Reconcilers, one subpackage per kind: synchronous pure functions from a view to a plan.

`frameworks/` contains what each training framework adds to its Pods. Reconcilers never import one another; code that
they share (ownership, metrics, the reason for waiting) is in the modules of this package.
"""
