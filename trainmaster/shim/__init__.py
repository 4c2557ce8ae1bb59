"""Everything that outlives the control plane: the zygote, one shim per Pod, and the sandbox.

Standard library only, and no imports from outside this package (checked by import-linter): a shim is forked from a
small process, runs as long as its Pod, and must keep running while the package is upgraded. The control plane talks to
it through files in the Pod's directory and a Unix socket; `protocol.py` defines both, with a version.
"""
