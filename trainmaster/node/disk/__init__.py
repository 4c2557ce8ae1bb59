"""The machine's disk: measuring usage, evicting Pods, and keeping the results of jobs."""
