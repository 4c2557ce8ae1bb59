"""Who is calling (authenticators, tokens, certificates) and what they may do (RBAC)."""
