"""Jobs that Kueue holds in a queue: `waits` says why one waits, `reading` asks the cluster for what that follows from.

Nothing is asked on behalf of a job without the label of a queue, so where there is no Kueue nothing costs anything.
"""
