"""Stands in for sshd between the Pods of one gang, so that `mpirun` can start its daemons on them. Runs inside Pods."""
