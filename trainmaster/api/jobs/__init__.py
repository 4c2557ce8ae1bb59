"""Rules of batch/v1 Jobs that admission and the Job controller share, and those too long for the kind's declaration."""
