"""Admission on a cluster: the webhooks of TrainJobs, runtimes and v1 jobs, their certificates and configurations.

configurations   which requests API servers send here (pure; for whoever builds the manifests)
server           the port: HTTP with the limits of every port, reviews in, answers out
reviews          the format of a review and of its answer (pure)
examiner         the rules of `api.admission` over the operator's watch cache
keys             the certificate: a Secret of our own, or a mounted directory
rotation         when a certificate is replaced, in which steps (pure)
bundles          keeps `caBundle` of the configurations right
serving          puts them together for `operator.mode`
"""
