"""All commands, one module each: what it does, and how it is loaded. What several share stands one level up.

A command has what `CommandModule` asks for, and is imported by its name when it is called. The imports below never
happen: they show the modules to the type checker and to the import rules, and a test compares them with the table.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from trainmaster.cli.context import CommandModule
from trainmaster.kit.late_methods import late_methods

if TYPE_CHECKING:
    from trainmaster.cli.commands import (
        backup,
        check,
        cleanup,
        code,
        completion,
        config,
        delete,
        describe,
        doctor,
        down,
        exec,
        explain,
        get,
        history,
        init,
        kubeconfig,
        list,
        logs,
        nodes,
        operator,
        outputs,
        purge,
        rest,
        restart,
        restore,
        resume,
        run,
        runtimes,
        service,
        status,
        submit,
        suspend,
        tenant,
        top,
        up,
        version,
        wait,
        watch,
    )

    _MODULES: Sequence[CommandModule] = (
        backup, check, cleanup, code, completion, config, delete, describe, doctor, down, exec, explain, get,
        history, init, kubeconfig, list, logs, nodes, operator, outputs, purge, rest, restart, restore, resume, run,
        runtimes, service, status, submit, suspend, tenant, top, up, version, wait, watch,
    )  # fmt: skip

COMMANDS = {
    "run": "Train: start a server if none runs, send the code, submit a job, show it, end with its exit code",
    "watch": "Show a job live again, as `run` does, and end with its exit code",
    "init": "Write a starter project: train.py, a manifest and a README",
    "submit": "Submit TrainJobs and what they need from manifests: -f FILE, DIR or -",
    "list": "List TrainJobs with state, reason, progress and age; --watch goes on",
    "get": "Show TrainJobs by name; -o yaml for the whole object",
    "describe": "Describe a TrainJob: state and why, ranks, terms, events, what to type next",
    "logs": "Print what all ranks print, merged; -f follows across restarts",
    "explain": "Say why a TrainJob does not run, and the smallest change that would start it now",
    "top": "Show what jobs use now: CPU, memory and GPUs, per job and rank",
    "exec": "Run a program beside a rank of a TrainJob, a shell for example",
    "wait": "Wait until TrainJobs are complete, running, finished, suspended or gone",
    "suspend": "Stop the Pods of TrainJobs and give their room to others",
    "resume": "Let suspended TrainJobs go on",
    "restart": "Begin the next attempt of a running TrainJob; submit one that has ended again",
    "delete": "Delete TrainJobs and all that belongs to them",
    "check": "Say what becomes of every field of a manifest here, and whether a server would take it",
    "runtimes": "List runtimes with framework, nodes and who uses them",
    "nodes": "List nodes with instance type, architecture, OS, GPUs and capacity type",
    "up": "Start the control plane of a home (foreground; --detach for the background)",
    "status": "Say whether a server runs, where it listens and where its kubeconfig is",
    "down": "Stop the server; Pods live on unless --stop-jobs",
    "kubeconfig": "Print the path of the owner's kubeconfig",
    "config": "Print the effective settings and where each came from",
    "outputs": "What jobs left behind, also after they are gone: list, get",
    "code": "Code of jobs without an image: pack a directory, list what is kept",
    "history": "What happened to jobs, also after they are gone: list, get, logs, rerun, export, purge",
    "cleanup": "Delete finished TrainJobs, orphans and stuck ones; shows its plan first",
    "service": "Let systemd run the server from boot on: install, uninstall, status",
    "backup": "Write a consistent copy of all objects to a file, also while the server runs",
    "restore": "Replace all objects by those of a backup",
    "purge": "Remove a home, or all that finished jobs have left in it; shows its plan and asks",
    "operator": "Work on a Kubernetes cluster in place of Kubeflow Trainer's manager",
    "rest": "Serve the REST API alone, before a cluster or the server of a home",
    "tenant": "People who share this installation: add, list, rotate, disable, enable, delete",
    "doctor": "Say what is wrong with this machine, or with a TrainJob, and how to fix it",
    "completion": "Print what makes bash, zsh or fish complete commands, options and names of jobs",
    "version": "Print the version",
}

HEADINGS = {"run": "jobs", "up": "server", "outputs": "what jobs leave", "service": "administration"}
"""A heading before the command of that name."""


def load_command(name: str) -> CommandModule:
    with late_methods():
        return cast("CommandModule", importlib.import_module(f"trainmaster.cli.commands.{name}"))
