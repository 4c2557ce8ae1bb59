"""The declarations of all served kinds, one module (or package) per group and version, one `Kind` value per kind."""
