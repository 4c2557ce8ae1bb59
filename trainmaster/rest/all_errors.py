"""Reports the invalid values of a request together with the errors of its schema.

The web framework answers as soon as the schema does not fit. A client would then learn about unknown frameworks and
invalid values only in later rounds. With the route class here, what does not fit is replaced by an empty value, and the
route's own checks look at the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, TypeVar

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from trainmaster.rest.problems import FieldProblem, Problem, from_validation, invalid

_ROUNDS = 6
"""Repairing a field takes at most this many: without it, with an empty text, with an empty object."""

M = TypeVar("M", bound=BaseModel)


class ValueChecks(Generic[M]):
    """What a route checks besides the schema of its request."""

    def __init__(
        self,
        model: type[M],
        list_problems: Callable[[Request, M], Awaitable[Sequence[FieldProblem]]],
        *,
        related: Sequence[frozenset[str]] = (),
    ) -> None:
        self.model = model
        self.list_problems = list_problems
        self.related = related
        """Fields that are checked together: an error in one may only follow from an error of the schema in another."""

    async def complete(self, request: Request, problem: Problem, sent: Mapping[str, Any]) -> Problem:
        """The problem with the errors of the values added; `sent` is what the schema did not fit."""
        repaired = repair(self.model, sent)
        if repaired is None:
            return problem
        try:
            found = await self.list_problems(request, repaired)
        except Problem:
            # Something else is wrong too, such as a template; it is reported once the request fits.
            return problem
        known = {_get_place(error) for error in problem.errors}
        tops = {place.partition("/")[0] for place in known}
        settled = {field for group in self.related if group & tops for field in group}
        more = [error for error in found if not _follows(_get_place(error), known, settled)]
        return invalid([*problem.errors, *more], hint=problem.hint)


def _get_place(error: FieldProblem) -> str:
    return error.pointer.removeprefix("/") or error.parameter


def _follows(place: str, known: set[str], settled: set[str]) -> bool:
    """Whether the field, what contains it, or a field that is checked with it is reported already."""
    parts = place.split("/")
    return parts[0] in settled or any("/".join(parts[:count]) in known for count in range(1, len(parts) + 1))


def build_route_class(checks_of: Mapping[str, ValueChecks[Any]]) -> type[APIRoute]:
    """For a router: `checks_of` has the checks of its routes, by the names of their functions."""

    class CheckedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle, checks = super().get_route_handler(), checks_of.get(self.name)
            if checks is None:
                return handle

            async def handle_checked(request: Request) -> Response:
                try:
                    return await handle(request)
                except RequestValidationError as error:
                    problem = from_validation(error.errors(), request.headers.get("content-type", ""))
                    sent = error.body if self.body_field is not None else dict(request.query_params)
                    if problem.errors and isinstance(sent, dict):
                        problem = await checks.complete(request, problem, sent)
                    raise problem from None

            return handle_checked

    return CheckedRoute


def repair(model: type[M], sent: Mapping[str, Any]) -> M | None:
    """The request with an empty value for everything that does not fit; None if there is no such request."""
    draft = _Draft(sent)
    for _ in range(_ROUNDS):
        try:
            return model.model_validate(draft.data)
        except ValidationError as error:
            for one in error.errors(include_url=False, include_input=False):
                draft.replace(one["loc"], is_missing=one["type"] == "missing")
    return None


class _Draft:
    """A request that can be changed. Only the containers that change are copied, each once: requests can be large."""

    def __init__(self, sent: Mapping[str, Any]) -> None:
        self.data = dict(sent)
        self._own: dict[int, Any] = {id(self.data): self.data}

    def replace(self, location: tuple[str | int, ...], *, is_missing: bool) -> None:
        parent: Any = self.data
        for part in location[:-1]:
            parent = self._step_into(parent, part)
        last = location[-1]
        if isinstance(parent, dict) and is_missing:
            parent[last] = ""
        elif isinstance(parent, dict):
            parent.pop(last, None)
        elif isinstance(parent, list) and isinstance(last, int) and last < len(parent):
            # An element has to keep its place: the places of the others are reported.
            parent[last] = {} if parent[last] == "" else ""
        else:
            self.data.pop(str(location[0]), None)

    def _step_into(self, parent: Any, part: str | int) -> Any:
        is_known = isinstance(parent, dict) and part in parent
        if not is_known and not (isinstance(parent, list) and isinstance(part, int) and part < len(parent)):
            return None
        child = parent[part]
        if isinstance(child, dict | list) and id(child) not in self._own:
            child = parent[part] = child.copy()
            self._own[id(child)] = child
        return child
