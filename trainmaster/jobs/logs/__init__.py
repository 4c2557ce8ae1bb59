"""What the processes of a job print: one stream over ranks, attempts and restarts (`stream`)."""
