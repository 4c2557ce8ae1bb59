"""Admission rules that depend on other objects: pure functions with a read-only lookup.

The API server calls them for writes (`apiserver.admission.trainer`). The TrainJob controller also calls them before it
creates anything, because a cluster does not use our API server. Messages begin with upstream's text; advice follows.
"""
