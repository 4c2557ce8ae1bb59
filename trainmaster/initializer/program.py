"""The initializer: `python program.py dataset|model` downloads STORAGE_URI.

Run by path inside a Pod, in the Python environment that the image rules select, so it imports nothing of ours. The
variables are those of upstream's images: STORAGE_URI, ACCESS_TOKEN, IGNORE_PATTERNS, and for s3 ENDPOINT,
ACCESS_KEY_ID, SECRET_ACCESS_KEY, REGION. Besides hf:// and s3:// it supports file:// (a file or directory of the
machine).

The target (/workspace/dataset, /workspace/model, or TARGET) appears completely or not at all: content is written to a
directory beside it, which is then renamed. With CACHE_DIRECTORY downloads are reused; the key is the URI with its
patterns.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

TARGETS = {"dataset": "/workspace/dataset", "model": "/workspace/model"}
MODEL_PATTERNS = ("*.json", "*.safetensors", "*.model", "*.txt", "*.gguf")
"""Files of a Hugging Face model that are downloaded, as upstream does."""


class InitializerRefused(Exception):
    """The request cannot be fulfilled; the text is for the author of the job."""


@dataclass(frozen=True)
class Task:
    kind: str
    uri: str
    target: Path
    ignore: tuple[str, ...] = ()
    token: str = ""
    s3: Mapping[str, str] | None = None
    cache: Path | None = None

    @property
    def path(self) -> str:
        return self.uri.partition("://")[2]


def read_task(kind: str, environ: Mapping[str, str]) -> Task:
    if kind not in TARGETS:
        raise InitializerRefused(f"there is no initializer for {kind!r}: say dataset or model")
    uri = environ.get("STORAGE_URI", "").strip()
    if "://" not in uri:
        raise InitializerRefused(
            f"STORAGE_URI must be hf://, s3:// or file://, not {uri!r}: set storageUri of the initializer"
        )
    patterns = tuple(part.strip() for part in environ.get("IGNORE_PATTERNS", "").split(",") if part.strip())
    names = {"ENDPOINT": "endpoint_url", "ACCESS_KEY_ID": "aws_access_key_id", "REGION": "region_name"}
    s3 = {ours: environ[name] for name, ours in names.items() if environ.get(name)}
    if environ.get("SECRET_ACCESS_KEY"):
        s3["aws_secret_access_key"] = environ["SECRET_ACCESS_KEY"]
    cache = environ.get("CACHE_DIRECTORY")
    target = Path(environ.get("TARGET") or TARGETS[kind])
    return Task(kind, uri, target, patterns, environ.get("ACCESS_TOKEN", ""), s3, Path(cache) if cache else None)


def load_file(task: Task, into: Path) -> None:
    parts = urlsplit(task.uri)
    if parts.netloc not in ("", "localhost"):
        raise InitializerRefused(f"{task.uri} names the machine {parts.netloc!r}: write file:///path")
    source = Path(unquote(parts.path))
    if source.is_file():
        shutil.copy2(source, into / source.name)
        return
    if not source.is_dir():
        raise InitializerRefused(f"{task.uri}: there is no such file or directory")

    def skip(directory: str, names: list[str]) -> set[str]:
        base = Path(directory).relative_to(source)
        return {name for name in names if is_ignored(str(base / name), task.ignore)}

    shutil.copytree(source, into, ignore=skip, dirs_exist_ok=True)


def load_hugging_face(task: Task, into: Path) -> None:
    try:
        hub = import_module("huggingface_hub")
    except ImportError:
        raise InitializerRefused("hf:// needs the package huggingface_hub in the environment of this image") from None
    segments = [part for part in task.path.split("/") if part]
    if not segments:
        raise InitializerRefused(f"{task.uri} names no repository: write hf://owner/name")
    hub.snapshot_download(
        repo_id="/".join(segments[:2]) if task.kind == "dataset" else "/".join(segments),
        repo_type=task.kind,
        local_dir=str(into),
        allow_patterns=list(MODEL_PATTERNS) if task.kind == "model" else None,
        ignore_patterns=list(task.ignore) or None,
        token=task.token or None,
    )


def load_s3(task: Task, into: Path) -> None:
    try:
        boto3 = import_module("boto3")
    except ImportError:
        raise InitializerRefused("s3:// needs the package boto3 in the environment of this image") from None
    bucket, _, prefix = task.path.partition("/")
    client = boto3.client("s3", **(task.s3 or {}))
    found = 0
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents") or ():
            name = name_object(entry["Key"], prefix)
            if name is None or is_ignored(name, task.ignore):
                continue
            place = into / name
            place.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, entry["Key"], str(place))
            found += 1
    if not found:
        raise InitializerRefused(f"{task.uri}: there is nothing below it")


def name_object(key: str, prefix: str) -> str | None:
    """The object's path relative to the target; None for directory markers and names that lead out of it."""
    if key.endswith("/"):
        return None
    below = key.removeprefix(prefix).lstrip("/") or key.rsplit("/", 1)[-1]
    return None if ".." in below.split("/") else below


LOADERS: Mapping[str, Callable[[Task, Path], None]] = {
    "file": load_file,
    "hf": load_hugging_face,
    "s3": load_s3,
}


def is_ignored(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def run(task: Task) -> str:
    """Fills the target and returns a line for the log."""
    scheme = task.uri.partition("://")[0]
    loader = LOADERS.get(scheme)
    if loader is None:
        raise InitializerRefused(
            f"{scheme}:// is not known here: STORAGE_URI may begin with {', '.join(f'{x}://' for x in LOADERS)}"
        )
    if not task.target.parent.is_dir():
        # Without a volume it would be lost with the container, or left behind on the machine.
        raise InitializerRefused(f"there is no {task.target.parent}: mount a volume there")
    if task.target.exists() and any(task.target.iterdir()):
        return f"{task.target} is filled already; nothing to do"
    kept = _find_cached(task)
    if kept is not None and kept.is_dir():
        _fill(task.target, lambda fresh: shutil.copytree(kept, fresh, dirs_exist_ok=True))
        return f"{task.uri} taken from the cache into {task.target}"
    if kept is None:
        _fill(task.target, lambda fresh: loader(task, fresh))
    else:
        _fill(kept, lambda fresh: loader(task, fresh))
        _fill(task.target, lambda fresh: shutil.copytree(kept, fresh, dirs_exist_ok=True))
    return f"{task.uri} loaded into {task.target}"


def _find_cached(task: Task) -> Path | None:
    """Data that is already on this machine needs no second copy."""
    if task.cache is None or task.uri.startswith("file://"):
        return None
    key = "\0".join((task.kind, task.uri, *task.ignore))
    return task.cache / hashlib.sha256(key.encode()).hexdigest()[:32]


def _fill(target: Path, load: Callable[[Path], object]) -> None:
    fresh = target.with_name(f".{target.name}.{os.getpid()}.part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        load(fresh)
        if target.is_dir():
            target.rmdir()
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    try:
        text = run(read_task(argv[0] if argv else "", environ))
    except InitializerRefused as refused:
        sys.stderr.write(f"initializer: {refused}\n")
        return 1
    sys.stdout.write(f"initializer: {text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
