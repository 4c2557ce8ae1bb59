"""Names of created objects: `{user_id}-job-{YYYYmmddHHMMSS}` and its ConfigMaps.

The second in a TrainJob's name is that of its creation, or the next free one, so that names keep their form for fast
users. The process chooses the next one that it has not used; the server decides, by refusing a second ConfigMap with
the same name.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from datetime import datetime, timedelta

from trainmaster.jobs.compose import names

_OWN_LENGTH = len("-job-YYYYmmddHHMMSS")
"""The length of a job's name without the user id."""
USER_LENGTH = names.get_longest() - _OWN_LENGTH
USER_RULE = f"a user id is {names.FORM}, at most {USER_LENGTH} characters"
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_REMEMBERED = 4096


def is_user(text: str) -> bool:
    return names.is_job_name(text, USER_LENGTH)


def get_longest_user(nodes: int) -> int:
    """The longest user id whose jobs of this many nodes have valid names."""
    return names.get_longest(nodes) - _OWN_LENGTH


def find_name_problem(name: str, nodes: int = names.MANY_NODES) -> str:
    """Why a job of this many nodes cannot have this name, or "". The default is valid for any number."""
    longest = names.get_longest(nodes)
    return "" if names.is_job_name(name, longest) else f"a name is {names.FORM}, at most {longest} characters"


def is_namespace(text: str) -> bool:
    return _NAMESPACE.fullmatch(text) is not None


def suggest_user(text: str) -> str:
    """The most similar valid user id; "" if there is none."""
    mapped = re.sub(r"[^a-z0-9]+", "-", text.lower()).lstrip("-0123456789")[:USER_LENGTH].rstrip("-")
    return mapped if is_user(mapped) else ""


def make_user(name: str) -> str:
    """The user id for this name: the name itself if valid, otherwise a unique one derived from it."""
    if is_user(name):
        return name
    # 27 characters, valid for any number of nodes.
    return f"{suggest_user(name)[:20].rstrip('-') or 'user'}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def get_latest_script(user_id: str) -> str:
    """The ConfigMap with the user's newest code."""
    return f"{user_id}-train-script"


def get_job_script(trainjob: str) -> str:
    """The ConfigMap with the code of one job; immutable."""
    return f"{trainjob}-script"


def build_job_name(user_id: str, moment: datetime) -> str:
    return f"{user_id}-job-{moment:%Y%m%d%H%M%S}"


class Seconds:
    """The seconds that this process has used for each user, so that it does not try them again."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, str], datetime] = OrderedDict()

    def take(self, namespace: str, user_id: str, now: datetime, ahead: int = 0) -> datetime:
        """The next unused second; `ahead` more if the server said that it is taken."""
        key = (namespace, user_id)
        last = self._last.pop(key, None)
        moment = now.replace(microsecond=0)
        if last is not None and last >= moment:
            moment = last + timedelta(seconds=1)
        moment += timedelta(seconds=ahead)
        self._last[key] = moment
        while len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)
        return moment
