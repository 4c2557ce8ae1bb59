"""Tenants: people who share one installation and do not see each other. Written with any `Client`, so it works on one
machine and on a cluster; used by `trainmaster tenant` and the REST API. What a tenant is made of: `api.tenancy`.
"""
