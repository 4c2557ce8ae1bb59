"""Adds the context of a home to the user's kubeconfig, and removes it: `trainmaster kubeconfig --merge` and `--remove`.

Our entries are marked with their home in an extension, which kubectl preserves. So merging again changes only these
entries, entries of another home are never overwritten, and removal finds them under any name. The file is replaced
atomically under kubectl's own lock (FILE.lock), after it was copied. All other content is kept, except comments and the
order of keys, which kubectl does not keep either. A file that would not change is not written.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items
from trainmaster.cli import exits
from trainmaster.kit.clock import Clock

MARK = "trainmaster.dev/home"
_SECTIONS = ("clusters", "users", "contexts")
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class Merged:
    path: Path
    changed: bool
    backup: Path | None = None
    context: str = ""
    is_current: bool = False
    removed: tuple[str, ...] = ()


def choose_target(given: str, environ: Mapping[str, str]) -> Path:
    """The given file, else the first of KUBECONFIG, else ~/.kube/config, as in kubectl."""
    listed = [part for part in environ.get("KUBECONFIG", "").split(":") if part]
    if given or listed:
        return Path(given or listed[0]).expanduser().absolute()
    home = environ.get("HOME")
    if not home:
        raise exits.Failure("HOME is not set: name the file with --to", exits.USAGE)
    return Path(home) / ".kube" / "config"


def merge_into(target: Path, own: Path, home: Path, name: str, *, use: bool, clock: Clock) -> Merged:
    """Failure if another context has this name, or the file is not a kubeconfig."""
    entry = _read_own(own)
    if target.resolve() == own.resolve():
        raise exits.Failure(f"{target} is this home's own kubeconfig: there is nothing to merge", exits.USAGE)
    with _locked(target):
        before = _read(target)
        after = add_context(before, name, entry, str(home), use=use)
        backup = _replace(target, before, after, clock)
    return Merged(target, before != after, backup, name, after.get("current-context") == name)


def remove_from(target: Path, home: Path, *, clock: Clock) -> Merged:
    if not target.exists():
        return Merged(target, changed=False)
    with _locked(target):
        before = _read(target)
        after, removed = drop_contexts(before, str(home))
        backup = _replace(target, before, after, clock)
    return Merged(target, before != after, backup, removed=removed)


# ---- content (pure) -----------------------------------------------------------


def add_context(config: Fields, name: str, entry: Mapping[str, Fields], home: str, *, use: bool) -> Object:
    """`entry`: the cluster, user and context of the home. The context becomes current if `use` is set or none is."""
    after = copy.deepcopy(dict(config))
    after.setdefault("apiVersion", "v1")
    after.setdefault("kind", "Config")
    mark = [{"name": MARK, "extension": {"home": home}}]
    bodies = {
        "clusters": {**entry["cluster"], "extensions": mark},
        "users": {**entry["user"], "extensions": mark},
        "contexts": {**entry["context"], "cluster": name, "user": name, "extensions": mark},
    }
    for section, body in bodies.items():
        listed = _list(after, section)
        place = next((index for index, one in enumerate(listed) if one.get("name") == name), None)
        if place is None:
            listed.append({"name": name, section[:-1]: body})
        elif _find_home(listed[place], section) != home:
            owner = _find_home(listed[place], section)
            whose = f"belongs to the home {owner}" if owner else "is not ours"
            raise exits.Failure(f'the entry "{name}" in {section} {whose}: choose another name with --name')
        else:
            kept = listed[place][section[:-1]]
            # Keep a namespace that the user has set in the context.
            chosen = {"namespace": kept["namespace"]} if section == "contexts" and kept.get("namespace") else {}
            listed[place] = {"name": name, section[:-1]: {**body, **chosen}}
    if use or not after.get("current-context"):
        after["current-context"] = name
    return after


def drop_contexts(config: Fields, home: str) -> tuple[Object, tuple[str, ...]]:
    """The config without the entries of the home, and the names of the removed contexts."""
    after = copy.deepcopy(dict(config))
    removed: list[str] = []
    for section in _SECTIONS:
        listed = _list(after, section)
        ours = [str(one["name"]) for one in listed if _find_home(one, section) == home]
        if section == "contexts":
            removed = ours
        listed[:] = [one for one in listed if _find_home(one, section) != home]
    if after.get("current-context") in removed:
        after["current-context"] = ""
    return after, tuple(removed)


def _list(config: Object, section: str) -> list[Object]:
    found = config.get(section)
    if found is None:
        found = config[section] = []
    return found


def _find_home(entry: Fields, section: str) -> str:
    """The home that an entry belongs to; "" if we did not add it."""
    for one in list_items(entry, section[:-1], "extensions"):
        if isinstance(one, Mapping) and one.get("name") == MARK and isinstance(one.get("extension"), Mapping):
            return str(one["extension"].get("home", ""))
    return ""


# ---- files ----------------------------------------------------------------------


def _read_own(path: Path) -> dict[str, Object]:
    config = _read(path)
    named = {section: {one["name"]: one[section[:-1]] for one in list_items(config, section)} for section in _SECTIONS}
    context = named["contexts"].get(config.get("current-context"))
    if context is None:
        raise exits.Failure(f"{path} has no current context: delete it, and the next `trainmaster up` writes it anew")
    try:
        cluster, user = named["clusters"][context["cluster"]], named["users"][context["user"]]
    except KeyError as error:
        text = f"{path} names {error}, which it does not have: delete it, and the next `trainmaster up` writes it anew"
        raise exits.Failure(text) from None
    return {"cluster": cluster, "user": user, "context": context}


def _read(path: Path) -> Object:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise exits.Failure(f"{path} is no text, so no kubeconfig; nothing was changed") from None
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        said = str(error).replace("\n", " ")
        raise exits.Failure(f"{path} is no kubeconfig, nothing was changed: {said}") from None
    if config is None:
        return {}
    if not isinstance(config, dict) or not all(_is_section(config.get(section), section) for section in _SECTIONS):
        raise exits.Failure(f"{path} is no kubeconfig: clusters, users and contexts must be lists; nothing was changed")
    return config


def _is_section(value: object, section: str) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and all(
        isinstance(one, dict) and "name" in one and isinstance(one.get(section[:-1]), dict | None) for one in value
    )


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Holds the lock file that kubectl uses."""
    real = target.resolve()
    lock = real.with_name(f"{real.name}.lock")
    if real.is_dir():
        raise exits.Failure(f"{target} is a directory: name the file with --to", exits.USAGE)
    try:
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        text = f"another program is changing {target}: try again, or remove {lock} if none is"
        raise exits.Failure(text) from None
    except OSError as error:
        raise exits.Failure(f"{target} cannot be changed: {error.strerror}: name another with --to") from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _replace(target: Path, before: Fields, after: Fields, clock: Clock) -> Path | None:
    """The path of the backup; None if there was no file, or nothing to change."""
    if before == after:
        return None
    real = target.resolve()
    backup = None
    if real.exists():
        stamp = clock.now().strftime("%Y%m%dT%H%M%S.%fZ")
        backup = real.with_name(f"{real.name}.backup-{stamp}")
        _write(backup, real.read_bytes())
    draft = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        _write(draft, yaml.safe_dump(dict(after), sort_keys=False, allow_unicode=True).encode())
        draft.replace(real)
    finally:
        draft.unlink(missing_ok=True)
    return backup


def _write(path: Path, data: bytes) -> None:
    """Creates a file that only its owner can read, and syncs it to disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
