"""From the command line of `trainmaster run` to a submitted TrainJob: its options, its code, a server that takes it."""
