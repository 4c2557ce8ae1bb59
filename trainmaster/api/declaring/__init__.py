"""The declaration of kinds, and what is derived from it: columns, CRDs, discovery, fidelity."""
