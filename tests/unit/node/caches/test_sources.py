"""Which of the owner's caches jobs see, and what is left out of them."""

from __future__ import annotations

import pytest

from trainmaster.app.settings import NodeOptions
from trainmaster.node.caches.sources import is_left_out, list_sources

pytestmark = pytest.mark.unit

SHIPPED = NodeOptions().model_caches


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        pytest.param(
            {"HOME": "/people/me"},
            [
                "/people/me/.cache/huggingface/hub",
                "/people/me/.cache/torch/hub/checkpoints",
                "/people/me/.cache/whisper",
            ],
            id="the usual places",
        ),
        pytest.param(
            {"HOME": "/people/me", "XDG_CACHE_HOME": "/big", "TORCH_HOME": "~/torch"},
            ["/big/huggingface/hub", "/people/me/torch/hub/checkpoints", "/big/whisper"],
            id="another disk",
        ),
        pytest.param(
            {"HOME": "/people/me", "HF_HOME": "/hf", "HF_HUB_CACHE": "/models"},
            ["/models", "/people/me/.cache/torch/hub/checkpoints", "/people/me/.cache/whisper"],
            id="the most specific variable counts",
        ),
        pytest.param({}, [], id="no home directory"),
    ],
)
def test_variables_of_the_libraries_are_followed(environ: dict[str, str], want: list[str]) -> None:
    found = list_sources(SHIPPED, environ)
    assert [source.path for source in found] == want
    assert [source.place for source in found] == list(SHIPPED)[: len(want)]


@pytest.mark.parametrize(
    "name", ["token", "stored_tokens", "modeling_x.py", "lib.so", "spaces--me--demo", ".locks", "abc.incomplete"]
)
def test_tokens_code_and_unfinished_files_are_left_out(name: str) -> None:
    assert is_left_out(name)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "models--gpt2", "refs", "main", "config.json"])
def test_model_files_are_not(name: str) -> None:
    assert not is_left_out(name)
