"""Claims and volumes: binds PersistentVolumeClaims to directories of the home (`local-directory`)."""
