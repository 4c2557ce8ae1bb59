"""Reads what kubectl printed when it was asked to create or to change an object."""

from __future__ import annotations

import re

from tests.golden.masking import Object, mask_text

_INVALID = re.compile(r'^The \w+ "[^"]*" is invalid: (.*)$', re.DOTALL)
_SERVER = re.compile(r'^Error from server(?: \((\w+)\))?: (?:error when creating "STDIN": )?(.*)$', re.DOTALL)
_WEBHOOK = re.compile(r'^admission webhook "([^"]+)" denied the request: (.*)$', re.DOTALL)
_UNKNOWN_KIND = re.compile(
    r'^error: resource mapping not found .* from "STDIN": (no matches for kind .*)$', re.MULTILINE
)
_WARNINGS = re.compile(r"\A(?:Warning: .*\n)+")


def read_refusal(message: str) -> Object:
    """What kubectl printed -> the API's reason, the webhook that refused, and the texts one by one."""
    message = _WARNINGS.sub("", message)
    if match := _UNKNOWN_KIND.match(message):
        return {"reason": "NotFound", "texts": [match[1]]}
    if match := _INVALID.match(message):
        return {
            "reason": "Invalid",
            "texts": [mask_text(text.strip()) for text in match[1].split("\n* ") if text.strip()],
        }
    match = _SERVER.match(message)
    if match is None:
        raise ValueError(f"not an answer that kubectl prints: {message[:200]}")
    reason, text = match[1] or "", match[2]
    webhook = ""
    if refused := _WEBHOOK.match(text):
        webhook, text = refused[1], refused[2]
        if text.startswith("[") and text.endswith("]"):
            return {"reason": reason, "webhook": webhook, "texts": re.split(r", (?=spec\.)", mask_text(text[1:-1]))}
    return {"reason": reason, "webhook": webhook, "texts": [mask_text(text)]}


def read_answer(message: str) -> Object | None:
    """None for a change that was let in."""
    return None if message.startswith("ACCEPTED") or message.endswith(" patched") else read_refusal(message)
