"""The real nginx in front of a server, set up as docs/dashboard.md says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.house.tree import ROOT
from tests.kube.processes import Processes, free_port
from tests.support.server import ServerProcess
from tools.nginx import Nginx

Way = Literal["removed", "kept"]
"""What the proxy does with its prefix."""

PREFIX = "/trainmaster"
_UPSTREAM = "https://127.0.0.1:8443"
# What a distribution's nginx.conf has, for one process that writes only into its folder.
_REST = """\
daemon off;
master_process off;
pid nginx.pid;
events {{}}
http {{
    access_log access.log;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
{server}
}}
"""


@dataclass(frozen=True)
class Documented:
    """The blocks of the chapter about proxies."""

    nginx: str
    settings: str


def read_document(way: Way) -> Documented:
    text = (ROOT / "docs" / "dashboard.md").read_text()
    chapter = text.partition("\n## Behind a proxy\n")[2].partition("\n## ")[0]
    server, keeping = re.findall(r"^```nginx\n(.*?)^```", chapter, re.MULTILINE | re.DOTALL)
    trusting, prefix = re.findall(r"^```toml\n(.*?)^```", chapter, re.MULTILINE | re.DOTALL)
    if way == "removed":
        return Documented(server, trusting)
    changed, count = re.subn(r"proxy_pass .*;", keeping.strip(), server)
    assert count == 1
    return Documented(changed, trusting + prefix)


@contextmanager
def running_nginx(found: Nginx, server: ServerProcess, written: str, folder: Path) -> Iterator[str]:
    """`written`: the server block of the document. Yields the address of the page."""
    port = free_port()
    pki = server.home / "pki"
    block = written
    for said, here in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("/etc/ssl/train.example.org.crt", str(pki / "server.crt")),
        ("/etc/ssl/train.example.org.key", str(pki / "server.key")),
        (_UPSTREAM, server.rest_url),
    ):
        assert block.count(said) == 1, said
        block = block.replace(said, here)
    (folder / "nginx.conf").write_text(_REST.format(server=block))
    processes = Processes(folder)
    arguments = ["-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]
    processes.start("nginx", found.program, arguments, found.environ)
    try:
        url = f"https://127.0.0.1:{port}{PREFIX}/"
        processes.wait_ready("nginx", f"{url}healthz")
        yield f"{url}ui/"
    finally:
        processes.stop()
