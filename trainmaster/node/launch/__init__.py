"""From a Pod object to what the shim executes: environment, commands, volumes, users, limits.

`launcher.Launcher` is the entry: `prepare` reads ConfigMaps and Secrets and makes volumes, `build_sandbox` and
`build_container` turn what was prepared into the shim's specs. One module per concern, all but the launcher pure.
"""

from __future__ import annotations

from trainmaster.node.launch.contract import LaunchError
from trainmaster.node.launch.process import Launch, Place, build_launch

__all__ = ["Launch", "LaunchError", "Place", "build_launch"]
