"""Lists the directories that jobs of a namespace left on disk, results and logs, for the namespace's quota.

Read from the archive, also while another part of the process writes to it. Blocks; call it in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import apsw

from trainmaster.history.archive import FILE
from trainmaster.history.logs import FOLDER
from trainmaster.history.results import RESULTS

_JOBS = """
SELECT uid FROM jobs WHERE namespace = ?1
UNION SELECT uid FROM open WHERE json_extract(CAST(object AS TEXT), '$.metadata.namespace') = ?1
"""


def list_directories(archive: Path, namespace: str) -> Sequence[Path]:
    """Directories that may exist; none if the archive cannot be read now."""
    path = archive / FILE
    if not path.exists():
        return ()
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            connection.set_busy_timeout(1000)
            jobs = [uid for (uid,) in connection.execute(_JOBS, (namespace,))]
            found = [archive / RESULTS / uid for uid in jobs]
            for job in jobs:
                rows = connection.execute("SELECT uid FROM jobsets WHERE trainjob = ?", (job,))
                found += [archive / FOLDER / uid for (uid,) in rows]
    except apsw.Error:
        return ()
    return found
