"""One description of Kubernetes objects, as a tree in which values are named, and its two readers: `evaluating` makes
objects of it, `helm` the text of Helm templates. What one reads, the other reads in the same way
(tests/seam/test_install.py), so a chart and our own commands cannot install different things.
"""
