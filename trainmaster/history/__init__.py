"""Records of TrainJobs that outlive them: spec, runtime, status, events, logs, and why and by whom they were deleted.

Stored in a separate SQLite file: losing or filling it never affects a running job, and it can be read without a server.
It uses the `Client` protocol and not the store.
"""
