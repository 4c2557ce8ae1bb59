"""A seeded simulation of the whole system: real store logic, registry, engine and controllers in virtual time.

`runner.run_seed` runs one seed with users, a scripted node and faults, and checks the invariants of the test plan. See
docs/simulation.md.
"""
