"""Trainmaster: runs distributed training jobs, on one machine and on Kubernetes.

Nothing runs on import. The command line lives in `trainmaster.cli`, the composition root in `trainmaster.app`.
"""

__version__ = "0.1.0"
