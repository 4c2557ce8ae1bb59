"""Replaces sshd between the Pods of a gang, so that `mpirun` can start its daemons on them. Runs inside Pods."""
