"""Renews the libraries of the dashboard in `trainmaster/rest/pages/ui/vendor/`, from npm, in exactly these versions.

    python tools/ui_vendor.py            fetches them and writes vendor/, with licences, versions and SHA-256
    python tools/ui_vendor.py --check    only compares the files with the recorded SHA-256; needs no network

The page is served as it is in the repository, so the files are ES modules whose imports are made relative; a script
gets a line that exports what it defines. Nothing else is changed in them, apart from line breaks, the address in the
first comment, and the reference to a source map that is not shipped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

VENDOR = Path(__file__).resolve().parent.parent / "trainmaster" / "rest" / "pages" / "ui" / "vendor"
RECORD = "versions.json"


@dataclass(frozen=True)
class Library:
    package: str
    version: str
    files: tuple[tuple[str, str], ...]
    """(name in the package, name here)"""
    defines: str = ""
    """What it defines, if it is a script and no module."""


LIBRARIES = (
    Library("preact", "11.2.0", (("dist/preact.mjs", "preact.js"), ("hooks/dist/hooks.mjs", "hooks.js"))),
    Library("@preact/signals-core", "1.14.5", (("dist/signals-core.mjs", "signals-core.js"),)),
    Library("@preact/signals", "2.11.4", (("dist/signals.mjs", "signals.js"),)),
    Library("htm", "3.1.1", (("dist/htm.mjs", "htm.js"),)),
    # Its module is not minified, and twice as large.
    Library("uplot", "1.6.32", (("dist/uPlot.iife.min.js", "uplot.js"), ("dist/uPlot.min.css", "uplot.css")), "uPlot"),
)
_PLACES = {"preact": "preact.js", "preact/hooks": "hooks.js", "@preact/signals-core": "signals-core.js"}
_IMPORT = re.compile(r"""(from|import)(\s*)(["'])([^"'./][^"']*)\3""")
_NEXT = re.compile(r""";(?=(?:import|export)[ {*"'])""")
_BANNER = re.compile(r"\A/\*![^*]*\*/\s*")
_SOURCE_MAP = re.compile(r"\n?//# sourceMappingURL=\S+\s*$")


def make_relative(source: str) -> str:
    """Names of packages become paths; one that is not vendored is an error. Each import has a line of its own, where
    the server finds it to name it in advance (`trainmaster/rest/page_tree.py`)."""

    def replace(match: re.Match[str]) -> str:
        word, space, quote, name = match.groups()
        return f"{word}{space}{quote}./{_PLACES[name]}{quote}"

    return _NEXT.sub(";\n", _SOURCE_MAP.sub("\n", _IMPORT.sub(replace, source)))


def prepare(source: str, name: str, defines: str) -> str:
    """The file as it is served. `defines`: what a script defines."""
    text = _BANNER.sub("", source)
    if not name.endswith(".js"):
        return text
    return f"{text.rstrip()}\nexport default {defines};\n" if defines else make_relative(text)


def fetch(library: Library, folder: Path) -> dict[str, str]:
    """Writes its files and its licence; returns their SHA-256 by name."""
    with tempfile.TemporaryDirectory() as work:
        command = ["npm", "pack", "--silent", f"{library.package}@{library.version}"]
        done = subprocess.run(command, cwd=work, check=True, stdout=subprocess.PIPE, text=True)
        with tarfile.open(Path(work) / done.stdout.strip().splitlines()[-1]) as archive:
            texts = {here: prepare(_read(archive, name), here, library.defines) for name, here in library.files}
            stem = library.files[0][1].removesuffix(".js")
            texts[f"{stem}.LICENSE"] = _read(archive, "LICENSE")
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: hash_text(text) for name, text in texts.items()}


def _read(archive: tarfile.TarFile, name: str) -> str:
    file = archive.extractfile(f"package/{name}")
    if file is None:
        raise FileNotFoundError(name)
    return file.read().decode()


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def renew(folder: Path = VENDOR) -> None:
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    record = [
        {"package": library.package, "version": library.version, "sha256": fetch(library, folder)}
        for library in LIBRARIES
    ]
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")


def list_changed(folder: Path = VENDOR) -> list[str]:
    """Files that are not what the record says: changed, missing, or not recorded. Also versions that are not ours."""
    record = json.loads((folder / RECORD).read_text())
    known = {name: digest for library in record for name, digest in library["sha256"].items()}
    found = {path.name: hash_text(path.read_text()) for path in folder.iterdir() if path.name != RECORD}
    versions = {library["package"]: library["version"] for library in record}
    wanted = {library.package: library.version for library in LIBRARIES}
    changed = {name for name in known.keys() | found.keys() if known.get(name) != found.get(name)}
    return sorted(
        changed | {name for name in versions.keys() | wanted.keys() if versions.get(name) != wanted.get(name)}
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Renew the vendored libraries of the dashboard.")
    parser.add_argument("--check", action="store_true", help="only compare with the recorded SHA-256")
    if not parser.parse_args().check:
        renew()
    changed = list_changed()
    for name in changed:
        print(f"{name} is not what vendor/{RECORD} says: run tools/ui_vendor.py")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
