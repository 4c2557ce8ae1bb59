"""Wire types, kinds, schemas, validation, patches, Status errors. Pure functions."""
