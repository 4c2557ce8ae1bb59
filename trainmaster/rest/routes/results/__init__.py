"""Routes to what jobs leave behind: outputs and code, checkpoints, evidence. The same for jobs and records."""
