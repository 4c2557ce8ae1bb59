"""Builds what the shim executes from a Pod object: environment, commands, volumes, users, limits.

`launcher.Launcher` is the entry point: `prepare` reads ConfigMaps and Secrets and creates volumes, `build_sandbox` and
`build_container` turn the result into the shim's specs. One module per concern, all pure except the launcher.
"""
