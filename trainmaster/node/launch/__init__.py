"""From a Pod object to what the shim executes: environment, commands, volumes, users, limits.

`launcher.Launcher` is the entry: `prepare` reads ConfigMaps and Secrets and makes volumes, `build_sandbox` and
`build_container` turn what was prepared into the shim's specs. One module per concern, all but the launcher pure.
"""
