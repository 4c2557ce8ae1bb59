"""Tenants: people who share one installation without seeing each other.

Works with any `Client`, so on one machine and on a cluster; used by `trainmaster tenant` and the REST API. The objects
of a tenant are defined in `api.tenancy`.
"""
