"""Read models: thin views of API objects that define each predicate once. Writes are patches of the raw object."""
