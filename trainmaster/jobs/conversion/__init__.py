"""From jobs of `kubeflow.org/v1` to TrainJobs: the objects, and a report of what is the same, what changes and what v2
cannot express."""
