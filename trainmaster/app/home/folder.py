"""The home: a directory with all state of one control plane, and the lock that its server holds.

    DIR/
      config.toml     settings (optional, yours)
      kubeconfig      for the owner, mode 0600
      server.json     who serves this home: pid, version, address, kubeconfig
      reserve         room for small files on a disk that is full
      port            the port of the last start, tried first at the next one
      rest-port       the same for the REST API
      dashboard-port  the same for the dashboard over plain HTTP
      lock            held by the server for its whole life
      store/          the SQLite file
      pki/            the CA, keys and tokens
      pods/           working directories and logs of Pods
      history/        records and logs of jobs that are over
      bundles/        code that jobs run, by its content
      caches/         the cache directory of the owner's jobs
      templates/      yours, over the templates of the REST API (optional)
      logs/           server.log (--detach), audit.log

Only the lock decides whether a server is running. The kernel releases it whenever the process ends, so a stale
server.json is recognised, and a reused pid is never mistaken for a server.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
RESERVE_BYTES = 1024 * 1024

# struct flock of 64-bit Linux: type, whence, start, length, pid. "Open file description" locks belong to an open file,
# not to a process: the holder itself can test the lock, and closing another descriptor does not release it.
_FLOCK = struct.Struct("hhqqi4x")
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The content of server.json. `server` and `kubeconfig` are empty while the server is starting."""

    pid: int
    version: str
    home: str
    server: str = ""
    kubeconfig: str = ""
    started: str = ""
    rest: Mapping[str, str] = field(default_factory=dict)
    """url and ca of the REST API; empty if it is disabled."""
    python: str = ""
    """The prefix of the Python environment in which it runs, which stands in for images."""
    warm: str = ""
    """Its setting `node.warm`."""
    dashboard: Mapping[str, str] = field(default_factory=dict)
    """url of the dashboard, for browsers on this machine; empty if the REST API is disabled."""


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class HomeError(Exception):
    """The home cannot be used; the text says why and what to do."""


class AlreadyRunning(HomeError):
    def __init__(self, info: ServerInfo) -> None:
        where = f" and serves {info.server}" if info.server else ""
        who = f"process {info.pid} (trainmaster {info.version})" if info.pid else "another process"
        super().__init__(
            f"{who} already runs the home {info.home}{where}: stop it with `trainmaster down --home {info.home}`"
        )
        self.info = info


def default_root(environ: Mapping[str, str]) -> Path:
    """TRAINMASTER_HOME, else `trainmaster` in the user's data directory."""
    if environ.get("TRAINMASTER_HOME"):
        return Path(environ["TRAINMASTER_HOME"]).expanduser()
    data = environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "trainmaster"


class Home:
    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.config = self.root / "config.toml"
        self.kubeconfig = self.root / "kubeconfig"
        self.server_json = self.root / "server.json"
        self.store = self.root / "store"
        self.pki = self.root / "pki"
        self.logs = self.root / "logs"
        self.pods = self.root / "pods"
        self.history = self.root / "history"
        self.bundles = self.root / "bundles"
        self.caches = self.root / "caches"
        self.templates = self.root / "templates"
        self.results = self.history / "results"
        self.server_log = self.logs / "server.log"
        self.audit_log = self.logs / "audit.log"
        self._lock = self.root / "lock"
        self._reserve = self.root / "reserve"
        self._ports = {
            "server": self.root / "port",
            "rest": self.root / "rest-port",
            "dashboard": self.root / "dashboard-port",
        }

    def prepare(self) -> None:
        """Creates the directories, accessible by the owner only."""
        self._check_owner()
        try:
            for folder in (self.root, self.store, self.pki, self.logs, self.pods):
                folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        except OSError as error:
            raise self.explain(error) from None

    def _check_owner(self) -> None:
        """Checks the owner and mode of the home before anything in it is trusted or written."""
        try:
            found = self.root.stat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.explain(error) from None
        if found.st_uid not in (0, os.geteuid()):
            raise HomeError(
                f"the home {self.root} belongs to another user ({found.st_uid}), who could exchange its keys: "
                f"take it over with `chown -R {os.geteuid()} {self.root}`, or choose another with --home"
            )
        if found.st_mode & stat.S_IWOTH:
            # A user who can replace files in it can replace the kubeconfig and the keys.
            raise HomeError(f"every user can write to the home {self.root}: close it with `chmod 700 {self.root}`")

    def explain(self, error: OSError) -> HomeError:
        """An error of its disk, for people."""
        if _is_full(error):
            return HomeError(f"the home {self.root} cannot be written: {error.strerror}: free some and try again")
        return HomeError(f"the home {self.root} cannot be used: {error.strerror}: choose another with --home")

    # ---- who runs it --------------------------------------------------------

    @contextmanager
    def hold(self, info: ServerInfo) -> Iterator[None]:
        """Holds the lock during the block; AlreadyRunning if another process holds it."""
        self.prepare()
        try:
            # Append mode never truncates an existing file. The file is private, because a user who can read it can
            # lock it, and so prevent the server from starting.
            descriptor = os.open(self._lock, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
        except OSError as error:
            raise self.explain(error) from None
        with open(descriptor, "a") as file:
            os.fchmod(descriptor, PRIVATE_FILE)
            try:
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, _WHOLE_FILE)
            except BlockingIOError:
                raise AlreadyRunning(self._read_info() or ServerInfo(0, "", str(self.root))) from None
            self.write_info(info)
            try:
                yield
            finally:
                self.server_json.unlink(missing_ok=True)

    def find_running(self) -> ServerInfo | None:
        """The running server of this home, or None (even if server.json exists)."""
        try:
            file = self._lock.open("r")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.explain(error) from None
        with file:
            # Only tests the lock. Taking it, even briefly, could make a concurrent `up` fail.
            answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE_FILE)
        if _FLOCK.unpack(answer)[0] == fcntl.F_UNLCK:
            return None
        return self._read_info() or ServerInfo(0, "", str(self.root))

    def find_died(self) -> ServerInfo | None:
        """The last server if it crashed; a normal stop removes server.json."""
        return None if self.find_running() is not None else self._read_info()

    def write_info(self, info: ServerInfo) -> None:
        self.write_private(self.server_json, json.dumps(asdict(info), indent=1) + "\n")

    def _read_info(self) -> ServerInfo | None:
        try:
            raw = json.loads(self.server_json.read_bytes())
            return ServerInfo(**{name: raw[name] for name in ServerInfo.__slots__ if name in raw})
        except (OSError, ValueError, TypeError):
            # The server has not written the file yet, or has another version.
            return None

    # ---- small files --------------------------------------------------------

    def find_port(self, of: str = "server") -> int | None:
        """The last port of the API server (`server`), the REST API (`rest`) or the dashboard (`dashboard`)."""
        try:
            return int(self._ports[of].read_text())
        except (OSError, ValueError):
            return None

    def write_port(self, port: int, of: str = "server") -> None:
        self.write_private(self._ports[of], f"{port}\n")

    def write_private(self, path: Path, text: str) -> None:
        """Replaces a file atomically; it is never readable by others.

        On a full disk the reserve is released for it, and as a last resort the existing file is overwritten.
        """
        try:
            try:
                self._replace(path, text)
            except OSError as error:
                if not _is_full(error):
                    raise
                self._reserve.unlink(missing_ok=True)
                self._replace_or_overwrite(path, text)
        except OSError as error:
            raise self.explain(error) from None

    def _replace(self, path: Path, text: str) -> None:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
            with open(descriptor, "w") as file:
                file.write(text)
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def _replace_or_overwrite(self, path: Path, text: str) -> None:
        try:
            self._replace(path, text)
        except OSError:
            if not path.exists():
                raise
            # Not truncated before writing, because its blocks are the only free space.
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                data = text.encode()
                os.pwrite(descriptor, data, 0)
                os.ftruncate(descriptor, len(data))
            finally:
                os.close(descriptor)

    def make_reserve(self) -> None:
        """Creates the reserve file if there is space. Errors are ignored, because this is retried."""
        if self._reserve.exists():
            return
        descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        except OSError:
            self._reserve.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
