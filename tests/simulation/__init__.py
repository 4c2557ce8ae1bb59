"""A seeded simulation of the whole system: real store logic, registry, engine and controllers in virtual time.

`runner.run_seed` plays one seed: users, a scripted node, and faults, under the invariants of the test plan. See
docs/simulation.md.
"""
