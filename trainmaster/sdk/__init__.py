"""For users of the Kubeflow SDK: a client for the local server, with deadlines and TTLs.

    import trainmaster

    client = trainmaster.connect()                            # the SDK's own, and two arguments more
    client.train(..., active_deadline_seconds=28800, ttl_seconds_after_finished=3600)

or with the SDK's own client: `client.train(..., options=[TTLSecondsAfterFinished(3600)])`. Runs in the user's
environment: the standard library, the code that finds a home, and the SDK in `client` and `connection`.
"""
