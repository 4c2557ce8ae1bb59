"""The output of a job's processes as one stream over ranks, attempts and restarts (`stream`)."""
