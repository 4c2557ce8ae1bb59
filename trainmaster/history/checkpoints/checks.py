"""What is wrong with a checkpoint, in a sentence: quickly, or after everything in it was read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson

from trainmaster import checkpoint
from trainmaster.history.checkpoints.formats import distributed, safetensors, zips
from trainmaster.history.checkpoints.grouping import SAFETENSORS, TORCH, TRAINER_STATE
from trainmaster.history.checkpoints.model import CheckpointFile, CheckpointSource, Format, to_printable
from trainmaster.history.checkpoints.opening import Damaged, Exhausted, OpenedCheckpointFile, ReadingBudget, opened

_MOST_JSON = 8 << 20
_HEAD = 512
_PIECE = 1 << 20
_MODELS = ("model", "pytorch_model", "adapter_model", "tf_model", "flax_model", "consolidated")
"""How the names of files with weights begin that Hugging Face's Trainer writes."""


@dataclass(frozen=True, slots=True)
class MarkerNote:
    """What a marker says."""

    step: int | None = None
    attempt: int | None = None
    files: Mapping[str, tuple[int, str]] | None = None
    """By path: bytes, and SHA-256 or ""; None if it does not say."""
    origin: str = ""
    """Where it was copied from, if it was."""


def read_note(source: CheckpointSource, marker: str, budget: ReadingBudget) -> MarkerNote:
    """What cannot be read says nothing: a marker may be empty."""
    try:
        with opened(source.root, marker, budget) as file:
            if file.size > checkpoint.MARKER_BYTES:
                return MarkerNote()
            content = orjson.loads(file.read(0, file.size))
        noted, origin = content.get("files"), content.get("from", "")
        files = None
        if isinstance(noted, dict):
            files = {path: (int(about["bytes"]), str(about.get("sha256", ""))) for path, about in noted.items()}
        step, attempt = read_count(content.get("step")), read_count(content.get("attempt"))
        return MarkerNote(step, attempt, files, origin if isinstance(origin, str) else "")
    except (Damaged, Exhausted, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return MarkerNote()


def read_count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None


def read_trainer_step(source: CheckpointSource, budget: ReadingBudget) -> int | None:
    """`global_step` of Hugging Face's Trainer."""
    try:
        content = _read_json(source, TRAINER_STATE, budget)
        return read_count(content.get("global_step"))
    except (Damaged, Exhausted):
        return None


def find_problem(
    source: CheckpointSource, form: Format, note: MarkerNote, budget: ReadingBudget, *, whole: bool = False
) -> str:
    """What is wrong; "" if nothing was found. `whole`: everything is read. What the budget does not cover is not looked
    into."""
    return next(list_problems(source, form, note, budget, whole=whole), "")


def list_problems(
    source: CheckpointSource, form: Format, note: MarkerNote, budget: ReadingBudget, *, whole: bool = False
) -> Iterator[str]:
    """One sentence for each damaged file. Stops when the budget is used up."""
    sizes = {file.path: file.bytes for file in source.files}
    broken = set()
    for path, (size, _) in (note.files or {}).items():
        if sizes.get(path) != size:
            broken.add(path)
            yield _name(source, path) + (
                " is missing" if path not in sizes else f" has {sizes[path]:,} bytes, and its marker says {size:,}"
            )
    yield from _list_lacking(source, form, sizes, budget, whole)
    for file in source.files:
        noted = (note.files or {}).get(file.path)
        if file.path in broken or (noted is not None and not file.bytes):
            continue  # said, or meant to be empty
        try:
            _check_file(source, file, form, budget, whole)
            if whole and noted is not None and noted[1]:
                _compare_digest(source, file, noted[1], budget)
        except Damaged as damage:
            yield f"{_name(source, file.path)} {damage}"
        except Exhausted:
            return


def _list_lacking(
    source: CheckpointSource, form: Format, sizes: Mapping[str, int], budget: ReadingBudget, whole: bool
) -> Iterator[str]:
    """Files that the format needs."""
    try:
        if not sizes:
            yield "it has no files"
        elif form == "torch-distributed":
            yield from _list_lacking_shards(source, sizes, budget, whole)
        elif form == "hugging-face":
            yield from _list_lacking_weights(source, sizes, budget)
        elif form == "safetensors":
            yield from _list_lacking_parts(source, sizes, budget)
    except Exhausted:
        return


def _list_lacking_shards(
    source: CheckpointSource, sizes: Mapping[str, int], budget: ReadingBudget, whole: bool
) -> Iterator[str]:
    if distributed.METADATA not in sizes:
        yield f"it has no {distributed.METADATA}: saving it did not end"
        return
    if sizes[distributed.METADATA] > distributed.QUICK_BYTES and not whole:
        return
    try:
        with opened(source.root, source.locate(distributed.METADATA), budget) as file:
            expected = distributed.read_sizes(file)
    except Damaged as damage:
        yield f"{distributed.METADATA} {damage}"
        return
    for name, least in sorted(expected.items()):
        if name not in sizes:
            yield f"{name} is missing"
        elif sizes[name] < least:
            yield f"{name} is cut short: it has {sizes[name]:,} bytes of {least:,}"


def _list_lacking_weights(source: CheckpointSource, sizes: Mapping[str, int], budget: ReadingBudget) -> Iterator[str]:
    if TRAINER_STATE not in sizes:
        yield f"it has no {TRAINER_STATE}: saving it did not end"
    else:
        try:
            _read_json(source, TRAINER_STATE, budget)
        except Damaged as damage:
            yield f"{TRAINER_STATE} {damage}"
    # DeepSpeed and FSDP write the weights into directories.
    if not any(path.startswith(_MODELS) or "/" in path for path in sizes):
        yield "it has no weights: neither model.safetensors nor pytorch_model.bin"
    yield from _list_lacking_parts(source, sizes, budget)


def _list_lacking_parts(source: CheckpointSource, sizes: Mapping[str, int], budget: ReadingBudget) -> Iterator[str]:
    """Of models that are split into several files, by their index."""
    for index in [path for path in sizes if path.endswith(".index.json") and "/" not in path]:
        try:
            parts = _read_json(source, index, budget).get("weight_map")
        except Damaged as damage:
            yield f"{_name(source, index)} {damage}"
            continue
        for part in sorted(set(map(str, parts.values()))) if isinstance(parts, dict) else ():
            if part not in sizes:
                yield f"{to_printable(part[:200])} is missing"


def _check_file(
    source: CheckpointSource, file: CheckpointFile, form: Format, budget: ReadingBudget, whole: bool
) -> None:
    name = file.path or source.path
    is_shard = distributed.SHARD.fullmatch(name.rpartition("/")[2]) is not None
    is_tensors = name.endswith(SAFETENSORS)
    is_single = not file.path or name.endswith(TORCH)
    if not (is_shard or is_tensors or is_single):
        if whole:
            with opened(source.root, source.locate(file.path), budget) as found:
                _read_all(found)
        return
    if not file.bytes:
        raise Damaged("is empty")
    with opened(source.root, source.locate(file.path), budget) as found:
        if found.size != file.bytes:
            raise Damaged("is being written")
        if is_tensors:
            safetensors.check(found)
        head = found.read(0, min(_HEAD, found.size))
        if head.startswith(zips.SIGN) or zips.SIGN.startswith(head):
            check = zips.check_all if whole else zips.check_end
            check(found, single=not is_shard)
        elif form == "torch" and not file.path:
            raise Damaged("does not begin as torch.save begins a file")
        if whole:
            _read_all(found)


def _read_all(file: OpenedCheckpointFile) -> None:
    """Finds what the disk cannot read any more."""
    for place in range(0, file.size, _PIECE):
        file.read(place, min(_PIECE, file.size - place))


def _compare_digest(source: CheckpointSource, file: CheckpointFile, digest: str, budget: ReadingBudget) -> None:
    computed = hashlib.sha256()
    with opened(source.root, source.locate(file.path), budget) as found:
        for place in range(0, found.size, _PIECE):
            computed.update(found.read(place, min(_PIECE, found.size - place)))
    if computed.hexdigest() != digest:
        raise Damaged("has other bytes than when it was committed: its SHA-256 differs")


def _read_json(source: CheckpointSource, path: str, budget: ReadingBudget) -> Mapping[str, object]:
    """Raises Damaged."""
    with opened(source.root, source.locate(path), budget) as file:
        if file.size > _MOST_JSON:
            return {}
        try:
            content = orjson.loads(file.read(0, file.size))
        except ValueError:
            raise Damaged("is empty" if not file.size else "is not JSON: it may be cut short") from None
    if not isinstance(content, dict):
        raise Damaged("is not what it should be")
    return content


def _name(source: CheckpointSource, path: str) -> str:
    return to_printable((path or source.path.rpartition("/")[2])[:255])
