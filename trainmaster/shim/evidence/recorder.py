"""The collective that is open, from a dump of torch's flight recorder, if the program wrote one as JSON.

torch writes its own dumps as pickles, which are never read here: a pickle is a program. Those that are JSON come from
`torch._C._distributed_c10d._dump_nccl_trace_json`, or from tools.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from trainmaster.shim.evidence.proc import Facts, read_text

_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_MOST_BYTES = 4 << 20
_DONE = "completed"
_TEXT = 100


def find_collective(variables: Mapping[str, str]) -> Facts | None:
    """The oldest collective that has not ended; None if there is no dump. With `note` if it cannot be read."""
    for name in _VARIABLES:
        prefix = variables.get(name)
        path = f"{prefix}{variables.get('RANK', '')}"
        if prefix and os.path.isfile(path):
            return read_dump(read_text(path, _MOST_BYTES))
    return None


def read_dump(text: str) -> Facts | None:
    if not text.startswith("{"):
        return {"note": "the flight recorder's dump is a pickle, which is not read"}
    try:
        entries = json.loads(text).get("entries", [])
        found = [entry for entry in entries if entry.get("state") != _DONE]
        entry = min(found, key=lambda one: int(one.get("record_id", one.get("id", 0))), default=None)
        if entry is None:
            return None
        return {
            "name": str(entry.get("profiling_name", ""))[:_TEXT],
            "sequence": int(entry.get("collective_seq_id", entry.get("seq_id", 0)) or 0),
            "state": str(entry.get("state", ""))[:_TEXT],
            "group": str(entry.get("process_group", ""))[:_TEXT],
            "sizes": json.dumps(entry.get("input_sizes", []))[:_TEXT],
        }
    except (ValueError, TypeError, AttributeError):
        return {"note": "the flight recorder's dump cannot be read"}
