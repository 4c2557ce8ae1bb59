"""The REST API: users submit training code, the platform does the rest (docs/rest.md).

Routes are thin: decode, call a service on the caller's `Client`, encode. Everything is done as the caller, so the
permissions of the Kubernetes API apply. Importing this package is cheap; the web framework is loaded by `application`
and `serving`, which `app` imports at the first connection.
"""
