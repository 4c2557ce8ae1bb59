"""The table of all commands. Each is one module; code that several commands share is one level up.

A command implements `CommandModule` and is imported by name when it is called. The imports below are never executed:
they make the modules visible to the type checker and to the import rules. A test compares them with the table.
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
        convert,
        dashboard,
        delete,
        describe,
        doctor,
        down,
        drain,
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
        promote,
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
        undrain,
        up,
        version,
        wait,
        watch,
    )

    _MODULES: Sequence[CommandModule] = (
        backup, check, cleanup, code, completion, config, convert, dashboard, delete, describe, doctor, down, drain,
        exec, explain, get, history, init, kubeconfig, list, logs, nodes, operator, outputs, promote, purge, rest,
        restart, restore, resume, run, runtimes, service, status, submit, suspend, tenant, top, undrain, up, version,
        wait, watch,
    )  # fmt: skip

COMMANDS = {
    "run": "Train a script: start a server if needed, upload the code, submit a job and show it live",
    "watch": "Show the live view of a job, as `run` does",
    "init": "Write a starter project: train.py, a manifest and a README",
    "submit": "Submit TrainJobs and other objects from manifests: -f FILE, DIR or -",
    "list": "List TrainJobs with state, reason, progress and age; --watch prints changes",
    "get": "Show TrainJobs by name; -o yaml for the whole object",
    "describe": "Describe a TrainJob: state and reason, ranks, deadlines, events, next commands",
    "logs": "Print the logs of all ranks, merged; -f follows across restarts",
    "explain": "Show why a TrainJob does not run, and the smallest change that would start it now",
    "top": "Show the CPU, memory and GPU usage per job and rank",
    "exec": "Run a program in the container of a rank, for example a shell",
    "wait": "Wait until TrainJobs are complete, running, finished, suspended or deleted",
    "suspend": "Stop the Pods of TrainJobs and release their resources",
    "resume": "Continue suspended TrainJobs",
    "restart": "Start the next attempt of a running TrainJob; submit a finished one again",
    "delete": "Delete TrainJobs and everything that belongs to them",
    "check": "Check a manifest: how each field is handled, whether a server would accept it, when it would start",
    "convert": "Convert PyTorchJobs and other v1 jobs to TrainJobs, with a report of what changes",
    "promote": "Submit a job of this machine to a cluster, after showing what would be different there",
    "runtimes": "List runtimes with framework, nodes and the jobs that use them",
    "nodes": "List nodes with instance type, architecture, OS, GPUs and capacity type",
    "up": "Start the control plane of a home (foreground; --detach for the background)",
    "status": "Show whether a server is running, its address and its kubeconfig",
    "dashboard": "Open the web dashboard in the browser, with a one-time link",
    "down": "Stop the server; Pods continue unless --stop-jobs",
    "kubeconfig": "Print the path of the owner's kubeconfig",
    "config": "Print the effective settings and the source of each",
    "outputs": "Output files of jobs, also of deleted ones: list, get",
    "code": "Code of jobs without an image: pack a directory, list bundles",
    "history": "Records of finished and deleted jobs: list, get, logs, rerun, export, purge",
    "cleanup": "Delete finished TrainJobs, orphans and stuck ones; shows its plan and asks",
    "drain": "Let all jobs save and stop, and start nothing until undrain, for maintenance of the machine",
    "undrain": "End the drain: jobs continue where they were",
    "service": "Start the server at boot with systemd: install, uninstall, status",
    "backup": "Write a consistent copy of all objects to a file, also while the server runs",
    "restore": "Replace all objects with those of a backup; asks before it ends running Pods",
    "purge": "Remove a home, or only the data of finished jobs; shows its plan and asks",
    "operator": "Run the TrainJob controller on a Kubernetes cluster, instead of Kubeflow Trainer's manager",
    "rest": "Serve the REST API as a separate process, for a cluster or a home",
    "tenant": "Manage users who share this installation: add, list, rotate, disable, enable, delete",
    "doctor": "Find problems of this machine, or of a TrainJob, and how to fix them",
    "completion": "Print a script with which bash, zsh or fish complete commands, options and names of jobs",
    "version": "Print the version",
}

HEADINGS = {"run": "jobs", "up": "server", "outputs": "data of jobs", "drain": "administration"}
"""Headings of the overview, by the command that each precedes."""

SERVERS = frozenset({"up", "rest", "operator"})
"""Commands that run until they are stopped."""


def load_command(name: str) -> CommandModule:
    with late_methods():
        return cast("CommandModule", importlib.import_module(f"trainmaster.cli.commands.{name}"))
