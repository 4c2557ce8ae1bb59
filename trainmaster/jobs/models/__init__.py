"""Read models: thin views of API objects with every predicate once. The raw object stays; writes are patches of it."""
