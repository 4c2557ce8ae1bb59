"""From the command line of `trainmaster run` to a submitted TrainJob: wishes, manifests, a server that takes them."""
