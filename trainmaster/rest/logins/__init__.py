"""Logins of the dashboard: how a browser keeps a caller's token without seeing it (docs/security.md).

`logins` is the service, `state` what an installation keeps about logins, `storage` where it keeps that, `sealing` the
cipher, `requests` what a request shows and which requests are refused before anybody is identified.
"""
