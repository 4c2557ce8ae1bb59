"""`trainmaster run`, from the command line to the submitted TrainJob: options, code and server."""
