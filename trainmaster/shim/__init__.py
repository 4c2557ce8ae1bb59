"""What outlives the control plane: the zygote that forks, one shim per Pod, and the sandbox that they build.

Standard library only, and nothing of ours from outside this package (checked by import-linter): a shim is forked from
a small process, runs for as long as its Pod, and must go on while the package around it is upgraded. The control plane
talks to it through files in the Pod's directory and one Unix socket; `protocol.py` defines both, with a version.
"""
