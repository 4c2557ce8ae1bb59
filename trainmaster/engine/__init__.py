"""Controller machinery: requests, work queue, sources, plans, and the manager that runs reconcilers.

A reconciler is a synchronous pure function from a view to a plan (`plan.Reconcile`). Conflicts, refusals, crashes and
repeats are handled here, once for all reconcilers.
"""
