"""The environment that tests run in: what ALLOWED names, and nothing else of the machine's.

A variable of one machine must not decide whether a test passes: where PYTHONUNBUFFERED was set, a wrong exit code
stayed hidden. So `tools/testrun.py`, `tests/conftest.py` and every server that a test starts go through `scrub`. What
a test wants to set, it sets itself.

    python tools/scrub.py COMMAND...     runs a command in that environment
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

ALLOWED = (
    # Where things are. Tools and caches are found through them.
    "HOME", "PATH", "TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "USER", "LOGNAME",
    # How people read it, and whether a machine does: with CI=true a skipped test is a failure.
    "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "CI",
    # How this machine reaches others, for what tests install or build.
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
    # Settings of package installers and of Go, which builds the real control plane.
    "PIP_*", "UV_*", "GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOFLAGS", "GOTOOLCHAIN", "GOPATH",
    "GOCACHE", "GOMODCACHE",
    # Which GPUs tests may use on a shared machine, and options of pytest.
    "CUDA_VISIBLE_DEVICES", "PYTEST_*",
)  # fmt: skip
"""Names; one that ends with * stands for all that begin so."""

KNOBS = (
    "TRAINMASTER_CHAOS_KILLS", "TRAINMASTER_CHAOS_SEED", "TRAINMASTER_CRASH_ROUNDS", "TRAINMASTER_EXTRA_KUBECTLS",
    "TRAINMASTER_LOG_BYTES", "TRAINMASTER_OLDER_KUBERNETES", "TRAINMASTER_REPRODUCTION", "TRAINMASTER_WIRE_KUBECONFIG",
    "TRAINMASTER_WIRE_SERVER",
)  # fmt: skip
"""What tests themselves are told from outside: how long, how often, with which programs. No setting of a server."""

_NAMES = frozenset((*ALLOWED, *KNOBS))
_BEGINNINGS = tuple(name[:-1] for name in ALLOWED if name.endswith("*"))


def is_allowed(name: str) -> bool:
    return name in _NAMES or name.startswith(_BEGINNINGS)


def scrub(environ: Mapping[str, str]) -> dict[str, str]:
    """What of these variables may reach a test."""
    return {name: text for name, text in environ.items() if is_allowed(name)}


def heed_signals() -> None:
    """As from a terminal. Under nohup, and in the background of a script, programs are started so that they ignore
    these, and so do the programs that they start: a closed window would not end a server."""
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python tools/scrub.py COMMAND...")
    heed_signals()
    os.execvpe(sys.argv[1], sys.argv[1:], scrub(os.environ))
