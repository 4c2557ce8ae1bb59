"""What a kind is and what follows from its declaration: columns, CRDs, discovery, fidelity."""
