"""Real Pods on a real node: what a user sees of jobs that run, fail, wait and are replaced there.

Jobs take seconds there, so the tests of a file submit theirs together (`Site.submit`) and wait for each one in turn.
The operator under test is a Deployment of the image that holds this checkout (tests/cluster/deployment.py).
"""
