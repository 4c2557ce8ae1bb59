"""A real Kubernetes control plane as plain processes on loopback, for comparison.

`cluster.KubeCluster` starts etcd, kube-apiserver and, as asked, the controller manager, scheduler, JobSet and Trainer
managers and kwok's fake nodes. Tests use the session fixture `kube` (tests/kube/fixtures.py), people use
`python -m tests.kube up -- COMMAND`. The programs come from tools/toolbox.py.
"""
