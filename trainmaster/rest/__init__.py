"""The REST API: users bring training code, the platform does the rest (docs/rest.md).

Routes are thin: decode, call a service on the caller's `Client`, encode. Everything that a request does, it does as its
caller, so the rules of the Kubernetes API are the rules here. Importing this package is cheap; the web framework is
loaded by `application` and `serving`, which `app` imports at the first connection.
"""
