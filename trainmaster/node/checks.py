"""Runs probes and hooks inside the Pod: exec, httpGet, tcpSocket, grpc and sleep.

`check` returns whether a probe passed and what was seen; `run_hook` returns why a hook failed, or nothing. The caller
sets the time limit. A port may be the name of one of the container's ports.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_text
from trainmaster.kit.clock import Clock
from trainmaster.node import grpc_health
from trainmaster.node.shims.access import AccessError, PodAccess

_AGENT = "kube-probe/1.36"
_LONGEST_HEAD = 65536


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    uid: str
    container: Fields
    """The container's entry of the Pod's spec."""

    @property
    def name(self) -> str:
        return str(self.container["name"])

    def get_port(self, asked: int | str) -> int:
        for entry in list_items(self.container, "ports"):
            if entry.get("name") == asked:
                return int(entry["containerPort"])
        if isinstance(asked, str) and not asked.isdigit():
            raise AccessError(f"couldn't find port: {asked}")
        return int(asked)


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    ok: bool
    text: str = ""


async def check(access: PodAccess, target: ProbeTarget, probe: Fields) -> ProbeOutcome:
    try:
        if "exec" in probe:
            code, text = await access.run(target.uid, target.name, list_items(probe, "exec", "command"))
            return ProbeOutcome(code == 0, text)
        if "httpGet" in probe:
            status = await _get(access, target, probe["httpGet"])
            ok = 200 <= status < 400
            return ProbeOutcome(ok, "" if ok else f"HTTP probe failed with statuscode: {status}")
        if "tcpSocket" in probe:
            handler = probe["tcpSocket"]
            (await access.connect(target.uid, target.get_port(handler["port"]), read_text(handler, "host"))).close()
            return ProbeOutcome(ok=True)
        if "grpc" in probe:
            return await _ask_health(access, target, probe["grpc"])
    except (AccessError, OSError, EOFError, ValueError) as error:
        return ProbeOutcome(ok=False, text=str(error) or type(error).__name__)
    return ProbeOutcome(ok=False, text="missing probe handler")


async def run_hook(access: PodAccess, target: ProbeTarget, hook: Fields, clock: Clock) -> str:
    """Why it failed; "" if it succeeded."""
    try:
        if "exec" in hook:
            command = list_items(hook, "exec", "command")
            code, text = await access.run(target.uid, target.name, command)
            return "" if code == 0 else f"command '{' '.join(command)}' exited with {code}: {text}"
        if "httpGet" in hook:
            await _get(access, target, hook["httpGet"])
            return ""
        if "sleep" in hook:
            await clock.sleep(float(hook["sleep"].get("seconds") or 0))
            return ""
    except (AccessError, OSError, EOFError, ValueError) as error:
        return str(error) or type(error).__name__
    return "invalid handler: only exec, httpGet and sleep can be hooks"


async def _get(access: PodAccess, target: ProbeTarget, handler: Fields) -> int:
    """The status code. As in the kubelet, redirects are not followed and certificates are not verified."""
    port = target.get_port(handler["port"])
    path = handler.get("path") or "/"
    path = path if path.startswith("/") else f"/{path}"
    link = await access.connect(target.uid, port, read_text(handler, "host"))
    link.setblocking(False)
    headers = {"Host": f"{handler.get('host') or 'localhost'}:{port}", "User-Agent": _AGENT, "Accept": "*/*"}
    headers |= {str(entry["name"]): read_text(entry, "value") for entry in list_items(handler, "httpHeaders")}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "Connection: close"]
    try:
        secure = _trust_anyone() if handler.get("scheme") == "HTTPS" else None
        reader, writer = await asyncio.open_connection(
            sock=link, ssl=secure, server_hostname="" if secure else None, limit=_LONGEST_HEAD
        )
    except BaseException:
        link.close()
        raise
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        await writer.drain()
        words = (await reader.readline()).split()
    finally:
        writer.close()
    if len(words) < 2 or not words[0].startswith(b"HTTP/"):
        raise ValueError("malformed HTTP response")
    return int(words[1])


def _trust_anyone() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _ask_health(access: PodAccess, target: ProbeTarget, handler: Fields) -> ProbeOutcome:
    link = await access.connect(target.uid, target.get_port(handler["port"]))
    link.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=link)
    try:
        status = await grpc_health.ask(reader, writer, read_text(handler, "service"))
    finally:
        writer.close()
    if status == grpc_health.SERVING:
        return ProbeOutcome(ok=True)
    return ProbeOutcome(ok=False, text=f"service unhealthy (responded with {status})")
