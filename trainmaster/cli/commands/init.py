"""Write a starter project: a train.py that trains something small on several nodes, a manifest, and a README.

  trainmaster init my-project && cd my-project && trainmaster run --nodes 2 train.py

If torch is installed in the Python environment of this command, the program uses it (DistributedDataParallel),
otherwise plain Python; --torch and --plain override this. Existing files are never overwritten.

Exit codes: 0 success, 1 a file already exists.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shlex
from importlib import resources
from pathlib import Path

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext

_LONGEST = 40
_FILES = {"train.py": "", "trainjob.yaml": "trainjob.yaml.txt", "README.md": "README.md.txt"}
_IGNORE = ".trainmasterignore"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", default=".", metavar="DIR", help="directory (default: the current one)")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--torch", action="store_true", help="a program that uses torch, even if it is not installed")
    group.add_argument("--plain", action="store_true", help="a program that needs only Python")
    parser.add_argument(
        "--name", default="", metavar="NAME", help="name of the job (default: the name of the directory)"
    )


def run(options: argparse.Namespace, context: CommandContext) -> int:
    directory = Path(os.path.abspath(Path(options.directory).expanduser()))
    if directory.exists() and not directory.is_dir():
        raise exits.Failure(f"{directory} is a file: name a directory", exits.USAGE)
    if not str(directory).isprintable():
        raise exits.Failure(f"{str(directory)!r} has characters that no manifest can hold: use another directory")
    with_torch = options.torch or (not options.plain and importlib.util.find_spec("torch") is not None)
    name = choose_name(options.name, directory)
    texts = build(name, directory, with_torch=with_torch)
    present = [file for file in texts if os.path.lexists(directory / file)]
    if present:
        text = f"{', '.join(present)} in {directory} would be overwritten, so nothing was written"
        raise exits.Failure(f"{text}: name another directory, `trainmaster init my-project`")
    _write(directory, texts)
    for file in texts:
        context.say(f"wrote {directory / file}")
    if not with_torch and not options.plain:
        context.note("torch is not installed here: the program needs nothing but Python; --torch writes one with torch")
    here = "" if directory == Path.cwd() else f"cd {shlex.quote(options.directory)} && "
    context.say(f"try: {here}trainmaster run --nodes 2 train.py")
    return exits.OK


def choose_name(given: str, directory: Path) -> str:
    """The job name: the given one, else one derived from the directory name."""
    if given:
        if len(given) > _LONGEST or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", given):
            text = f"{given!r} is no name for a job: small letters, digits and -, a letter first, at most {_LONGEST}"
            raise exits.Failure(text, exits.USAGE)
        return given
    words = re.sub(r"[^a-z0-9]+", "-", directory.name.lower()).strip("-0123456789")[:_LONGEST].strip("-")
    return words or "starter"


def build(name: str, directory: Path, *, with_torch: bool) -> dict[str, str]:
    """The files of the project."""
    values = {
        "NAME": name,
        "DIRECTORY": json.dumps(str(directory), ensure_ascii=False),
        "COMMAND": "torchrun train.py" if with_torch else "python train.py",
        "MANAGER": "trainmaster.dev/init",
        "WHAT": "a small network with torch (DistributedDataParallel)" if with_torch else "a curve with plain Python",
    }
    program = "train_torch.py.txt" if with_torch else "train_plain.py.txt"
    texts = {file: _fill(_read(template or program), values) for file, template in _FILES.items()}
    return {**texts, _IGNORE: _read("trainmasterignore.txt")}


def _read(template: str) -> str:
    return resources.files("trainmaster.cli").joinpath("starter", template).read_text()


def _fill(text: str, values: dict[str, str]) -> str:
    return re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], text)


def _write(directory: Path, texts: dict[str, str]) -> None:
    """Writes all files. If one fails, the files already written are removed."""
    made_folder = not directory.exists()
    written: list[Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            with (directory / file).open("x") as target:
                written.append(directory / file)
                target.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        if made_folder and directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
        raise exits.Failure(f"{error.filename or directory} cannot be written: {error.strerror}") from None
