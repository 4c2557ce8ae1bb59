"""Our operator on a real control plane: the same controllers, a server that is not ours.

`stage.kube_stage` is what the flow tests of the TrainJob controller run on (tests/flow/conftest.py); the tests here add
what only a real cluster can show: cut connections, conflicts, restarts, least privilege, and what it costs.
"""
