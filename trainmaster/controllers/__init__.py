"""Reconcilers, one subpackage per kind: synchronous pure functions from a view to a plan.

`frameworks/` holds what a training framework adds to its Pods. Reconcilers never import one another; what they share
(ownership, conditions, the reason for waiting) stands in the modules beside this file.
"""
