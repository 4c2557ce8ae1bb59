"""Controller machinery: requests, work queue, sources, plans, and the manager that runs reconcilers.

A reconciler is a synchronous pure function from a view to a plan (`plan.Reconcile`). Everything that can go wrong
around it (conflicts, refusals, crashes, repeats) is handled here, once.
"""
