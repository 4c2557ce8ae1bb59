"""The Python environment that will run a job on this machine: what is said about it, and what it makes of the script.

The node decides with the same rules when the Pods start (`node.images.catalogue`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from trainmaster.api import image_rules
from trainmaster.api.labels import ENVIRONMENT
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_annotations, read_fields, read_text
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training.steps import NODE, find_container, find_trainer, get_template_spec
from trainmaster.cli.launch.programs import TrainingProgram
from trainmaster.cli.launch.run_options import RunOptionError
from trainmaster.client.contract import Client
from trainmaster.jobs.compose import syntax


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    prefix: str
    packages: tuple[str, ...] = ()
    """Installed on top, because a rule says so."""

    def describe(self, image: str) -> str:
        added = f" with {', '.join(self.packages)}" if self.packages else ""
        return f"image {image} is not pulled: the Python environment {self.prefix}{added} runs in its place"


async def find_environment(client: Client, runtime: Object, image: str, default: str) -> JobEnvironment | None:
    """The environment for the trainer of this runtime, with this image instead of its own unless that is "". None if
    the rules cannot be read, are invalid or lead nowhere: the Pods then say so. `default` is the server's prefix."""
    trainer = find_trainer(get_template_spec(runtime)) or {}
    image = image or (find_container(trainer, NODE) or {}).get("image", "")
    name = read_text(read_annotations(read_fields(trainer, "template", "spec", "template")), ENVIRONMENT)
    try:
        found = await client.get(CONFIG_MAPS, image_rules.NAME, image_rules.NAMESPACE)
    except NotFound:
        return None if name else JobEnvironment(default)
    except StatusError:
        return None
    return _apply_rules(read_text(found, "data", image_rules.KEY), image, name, default)


def _apply_rules(text: str, image: str, name: str, default: str) -> JobEnvironment | None:
    # Imported here because most homes have no rules of their own.
    from trainmaster.node.images import rules
    from trainmaster.node.images.shipped import SHIPPED

    try:
        table = rules.parse_table(text)
    except rules.RulesError:
        return None
    rule = next((rule for rule in (*table.rules, *SHIPPED) if rule.matches(image)), None)
    if rule is None and table.strict:
        return None
    rule = rule or rules.ImageRule(image)
    name = name or rule.environment
    named = rules.Named() if name == rules.DEFAULT else table.environments.get(name)
    return None if named is None else JobEnvironment(named.path or default, (*named.packages, *rule.packages))


def check_syntax(program: TrainingProgram, prefix: str) -> None:
    """RunOptionError with file and line if the environment's Python cannot run the script."""
    path = Path(program.script)
    try:
        code = (program.root / path).read_bytes()
    except OSError:
        return  # the job reports it
    if path.suffix != ".py" and b"\0" in code:
        return  # Python runs zip files and compiled files too
    if problem := _find_problem(code, prefix):
        raise RunOptionError(f"{path} {problem}")


def _find_problem(code: bytes, prefix: str) -> str:
    if prefix == sys.prefix:
        return syntax.find_problem(code, syntax.COMPILE)
    # Imported here because the server usually has the same environment as this command.
    from trainmaster.node.images.layers import BaseError, read_base

    try:
        base = read_base(prefix)
    except BaseError:
        return ""  # the Pods report it
    if base.version == syntax.THIS_VERSION:
        return syntax.find_problem(code, syntax.COMPILE)
    return syntax.find_problem_elsewhere(code, base.interpreter, base.version, syntax.COMPILE)
