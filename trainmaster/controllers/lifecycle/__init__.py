"""What happens to a TrainJob after its end: it is archived, kept for its time, and deleted with all that it owns.

Runs embedded, as an operator, and beside upstream's controller: it needs nothing but the TrainJob's conditions.
"""
