"""Print a script with which a shell completes commands, options, and the names of jobs, runtimes and nodes.

  bash:  source <(trainmaster completion bash)
  zsh:   source <(trainmaster completion zsh)
  fish:  trainmaster completion fish | source

Put that line into the start-up file of your shell. Names are requested from the server when you press Tab; if the
server does not answer within a second, there are none.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, CommandTable

if TYPE_CHECKING:
    from trainmaster.client.kubeconfig import ClusterConfig

SHELLS = ("bash", "zsh", "fish")
FILES = ":files"
"""Returned instead of candidates: the shell completes file names."""
_SECONDS = 1.0
_PLAIN = re.compile(r"[\w.:/=@+-]+")

_BASH = """\
# bash completion for trainmaster; load it with: source <(trainmaster completion bash)
_trainmaster() {
    local current="${COMP_WORDS[COMP_CWORD]}" line
    COMPREPLY=()
    while IFS= read -r line; do
        if [ "$line" = ":files" ]; then
            compopt -o default
            return
        fi
        COMPREPLY+=("${line%%$'\\t'*}")
    done < <("${COMP_WORDS[0]}" completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _trainmaster trainmaster
"""
_ZSH = """\
#compdef trainmaster
# zsh completion for trainmaster; load it with: source <(trainmaster completion zsh)
_trainmaster() {
    local -a found
    local line
    while IFS= read -r line; do
        if [[ "$line" == ":files" ]]; then
            _files
            return
        fi
        found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done < <("${words[1]}" completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)
    _describe 'trainmaster' found
}
if [[ "$funcstack[1]" == "_trainmaster" ]]; then
    _trainmaster "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
    compdef _trainmaster trainmaster
fi
"""
_FISH = """\
# fish completion for trainmaster; load it with: trainmaster completion fish | source
function __trainmaster_complete
    set -l tokens (commandline -opc) (commandline -ct)
    for line in ($tokens[1] completion --words $tokens[2..-1] 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c trainmaster -f -a '(__trainmaster_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="the shell")
    # Called by the scripts with the words typed so far; the last word is the one to complete.
    parser.add_argument("--words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if options.words is not None:
        assert context.table is not None
        for value, text in complete(options.words, context.table, _Names(context)):
            context.say(f"{value}\t{text}" if text else value)
        return exits.OK
    if options.shell is None:
        raise exits.Failure(f"say for which shell: trainmaster completion {'|'.join(SHELLS)}", exits.USAGE)
    context.write(_SCRIPTS[options.shell])
    return exits.OK


Candidate = tuple[str, str]
"""(word, description)"""
Ask = Callable[[str, argparse.Namespace], Sequence[str]]
"""(metavar such as JOB, options typed so far) -> names of that type."""


def complete(words: Sequence[str], table: CommandTable, ask: Ask) -> Iterator[Candidate]:
    """The candidates for the last word."""
    *before, current = words or ("",)
    if not before:
        yield from _match(list(table.texts.items()), current)
        return
    if before[0] not in table.texts:
        return
    parser = argparse.ArgumentParser(prog=before[0])
    table.load(before[0]).add_arguments(parser)
    state = _read(parser, before[1:])
    if state.behind:
        yield FILES, ""
    elif state.option is not None:
        yield from _complete_value(state.option, current, state, ask)
    elif current.startswith("--") and "=" in current:
        name, _, part = current.partition("=")
        action = state.parser._option_string_actions.get(name)
        if action is not None:
            yield from ((f"{name}={value}", text) for value, text in _complete_value(action, part, state, ask))
    elif current.startswith("-"):
        yield from _match(_list_options(state.parser), current)
    else:
        yield from _complete_positional(current, state, ask)


@dataclass(slots=True)
class _State:
    """The parse state at the end of the line."""

    parser: argparse.ArgumentParser
    """The parser of the command or of its action."""
    given: argparse.Namespace
    option: argparse.Action | None = None
    """The option whose value comes next."""
    positionals: int = 0
    behind: bool = False
    """After `--` nothing is completed."""


def _read(parser: argparse.ArgumentParser, words: Sequence[str]) -> _State:
    state = _State(parser, argparse.Namespace())
    for word in words:
        if state.behind:
            break
        if state.option is not None:
            setattr(state.given, state.option.dest, word)
            state.option = None
        elif word == "--":
            state.behind = True
        elif word.startswith("-") and len(word) > 1:
            _take_option(state, word)
        else:
            _take_word(state, word)
    return state


def _take_option(state: _State, word: str) -> None:
    name, equals, value = word.partition("=")
    action = state.parser._option_string_actions.get(name)
    if action is None and not word.startswith("--"):
        action = state.parser._option_string_actions.get(f"-{word[-1]}")  # -it
    if action is None or action.nargs == 0:
        return
    if equals:
        setattr(state.given, action.dest, value)
    else:
        state.option = action


def _take_word(state: _State, word: str) -> None:
    action = _find_positional(state)
    if isinstance(action, argparse._SubParsersAction) and word in action.choices:
        state.parser, state.positionals = action.choices[word], 0
        return
    state.positionals += 1


def _find_positional(state: _State) -> argparse.Action | None:
    actions = [action for action in state.parser._actions if not action.option_strings]
    if state.positionals < len(actions):
        return actions[state.positionals]
    return actions[-1] if actions and actions[-1].nargs in ("*", "+", argparse.REMAINDER) else None


def _complete_positional(current: str, state: _State, ask: Ask) -> Iterator[Candidate]:
    action = _find_positional(state)
    if isinstance(action, argparse._SubParsersAction):
        texts = {entry.dest: entry.help or "" for entry in action._choices_actions}
        yield from _match([(name, texts.get(name, "")) for name in action.choices], current)
    elif action is not None:
        yield from _complete_value(action, current, state, ask)


def _complete_value(action: argparse.Action, current: str, state: _State, ask: Ask) -> Iterator[Candidate]:
    if action.choices is not None:
        yield from _match([(str(choice), "") for choice in action.choices], current)
        return
    sort = _find_sort(action)
    if sort == FILES:
        yield FILES, ""
    elif sort:
        # The shell evaluates these, so accept only valid names from the server.
        names = [name for name in ask(sort, state.given) if _PLAIN.fullmatch(name)]
        yield from _match([(name, "") for name in names], current)


def _find_sort(action: argparse.Action) -> str:
    """The type of object that an argument names, derived from its metavar."""
    if action.dest in ("file", "to", "home", "kubeconfig", "config", "directory", "rest", "out"):
        return FILES
    if action.dest == "namespace":
        return "NAMESPACE"
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar in ("FILE", "DIR", "PATH"):
        return FILES
    if metavar in ("JOB", "RUNTIME", "NODE"):
        return metavar
    return "JOB" if metavar == "NAME" and action.dest == "job" else ""


def _list_options(parser: argparse.ArgumentParser) -> list[Candidate]:
    found = []
    for action in parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            text = (action.help or "").replace("%(default)s", str(action.default))
            found += [(name, text) for name in action.option_strings if name.startswith("--")]
    return found


def _match(candidates: Sequence[Candidate], current: str) -> Iterator[Candidate]:
    for value, text in candidates:
        if value.startswith(current):
            yield value, " ".join(text.split())


class _Names:
    """Gets names from the server. Errors are ignored, because the user is typing."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def __call__(self, sort: str, given: argparse.Namespace) -> Sequence[str]:
        from trainmaster.cli.servers import connection as server

        options = argparse.Namespace(home=None, kubeconfig="", context="", namespace=None)
        for name, value in vars(given).items():
            setattr(options, name, value)
        try:
            config = server.get_server(self._context, options)
            return asyncio.run(self._list(config, sort, options.namespace))
        except (exits.Failure, OSError):
            return ()

    async def _list(self, config: ClusterConfig, sort: str, namespace: str) -> list[str]:
        from trainmaster.api import resources, status
        from trainmaster.client import http
        from trainmaster.jobs import lookups

        wanted = {
            "RUNTIME": (resources.CLUSTER_TRAINING_RUNTIMES, ""),
            "NODE": (resources.NODES, ""),
            "NAMESPACE": (resources.NAMESPACES, ""),
        }
        client = http.HttpClient(config)
        try:
            async with asyncio.timeout(_SECONDS):
                if sort == "JOB":
                    return [job.name for job in await lookups.list_training_jobs(client, namespace)]
                return [item["metadata"]["name"] for item in (await client.list(*wanted[sort])).items]
        except (status.StatusError, TimeoutError):
            return []
        finally:
            await client.close()
