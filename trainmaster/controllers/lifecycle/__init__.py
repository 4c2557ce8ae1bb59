"""What happens to a finished TrainJob: it is archived, kept until its TTL expires, and deleted with everything it owns.

Runs in embedded mode, as an operator, and next to upstream's controller: it needs only the TrainJob's conditions.
"""
