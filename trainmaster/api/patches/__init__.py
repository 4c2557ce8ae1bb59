"""How a stored object changes: the four patch formats, and who owns which field afterwards.

Pure functions, used by the registry. `json_patch`, `merge` and `strategic` turn an object and a patch into a new
object; `apply` does the same for server-side apply; `managed_fields` records which manager set
which field, on every write. Objects given to these functions are never changed; results share unchanged branches.
"""
