"""Authentication and authorization: tokens, certificates, service accounts, RBAC, reviews, our own CA."""
