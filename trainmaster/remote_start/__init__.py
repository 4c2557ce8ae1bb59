"""Replaces sshd and kubectl between the Pods of an MPI job, so that `mpirun` can start its daemons there."""
