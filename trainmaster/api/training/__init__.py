"""Facts about TrainJobs and runtimes that admission and the controllers share: pure functions on parsed objects.

`steps` finds the jobs of a runtime that a TrainJob speaks about, `overrides` merges the three override shapes,
`template` fills in what the TrainJob says, `devices` counts GPUs and CPUs, `torchtune` knows recipes, `reserved` the
variables that belong to frameworks, `snapshots` how a runtime is kept beside its job, `names` how long names become.
"""
