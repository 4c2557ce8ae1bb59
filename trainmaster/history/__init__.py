"""Records of TrainJobs that outlive them: spec, runtime, status, events, logs, and why and by whom they were deleted.

A part of its own with its own SQLite file: losing or filling it never harms a running job, and it can be read while no
server runs. It knows the `Client` protocol and nothing of the store.
"""
