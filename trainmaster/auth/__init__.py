"""Who is calling and what they may do: tokens, certificates, service accounts, RBAC, reviews, the own CA."""
