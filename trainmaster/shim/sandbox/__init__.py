"""The sandbox of a Pod: namespaces, root, network, control groups, seccomp. Standard library only."""
