"""From a request to a job that is there: its rules, its names, its code, its objects."""
