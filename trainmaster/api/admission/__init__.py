"""Admission rules that look at other objects: pure functions over a small read-only lookup.

The API server calls them for writes (`apiserver.admission.trainer`); the TrainJob controller asks the same questions
before it builds anything, because on a cluster our API server is not in the way. Texts are upstream's first, followed
by what a person needs to put it right.
"""
