"""Whose a sample is: engine, rank, GPU or port; hosts get numbers, their names are not kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from kvtrace.ingest.modelnames import is_name
from kvtrace.ingest.prometheus.uses import Program

_TARGET_LABELS: Final = (
    "cluster",
    "namespace",
    "job",
    "instance",
    "exported_instance",
    "pod",
    "pod_name",
    "kubernetes_pod_name",
    "node",
    "hostname",
    "Hostname",
)
"""Labels that tell one scraped process from another; a scraper adds them."""
_HOST_LABELS: Final = ("Hostname", "hostname", "nodename", "node", "exported_instance", "instance")
"""The first of these names a machine; pod and namespace there are those of whoever uses it."""
_PORT: Final = re.compile(r":[0-9]{1,5}\Z")
_PARTS: Final = (
    # (label, word in front of its value)
    ("model_name", "llm"),
    ("model", "llm"),
    ("role", "role"),
    ("engine_type", "type"),
    ("worker_id", "worker"),
    ("engine", "engine"),
    ("dp_rank", "dp"),
    ("pp_rank", "pp"),
    ("tp_rank", "tp"),
)
_GPU_PARTS: Final = (("gpu", "gpu"), ("GPU_I_ID", "mig"))
_PORT_PARTS: Final = (("device", "device"), ("port", "port"))
_ALWAYS: Final = frozenset({"engine", "gpu", "mig", "device", "port"})
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_RANK: Final = re.compile(r"[A-Za-z_]{0,16}[-_]?[0-9]{0,5}")
_NAMED: Final = frozenset({"llm", "device"})
"""Words in front of names; behind the others stand ranks, roles, and ids of workers."""


class Target(NamedTuple):
    """What tells one engine or device from another, as scraped; never stored."""

    program: str
    is_machine: bool
    host: tuple[str, ...]
    parts: tuple[tuple[str, str], ...]


def target_of(program: Program, labels: dict[str, str]) -> Target:
    """The target of a series with these labels."""
    if not program.is_machine:
        host = tuple(labels.get(name, "") for name in _TARGET_LABELS)
        return Target(program.slug, False, host, _parts(_PARTS, labels))
    named = next((labels[name] for name in _HOST_LABELS if labels.get(name)), "")
    host = (labels.get("cluster", ""), _PORT.sub("", named))
    parts = _GPU_PARTS if program.slug == "dcgm" else _PORT_PARTS
    return Target(program.slug, True, host, _parts(parts, labels))


def _parts(
    wanted: tuple[tuple[str, str], ...], labels: dict[str, str]
) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for label, word in wanted:
        if labels.get(label):
            found.setdefault(word, labels[label])
    return tuple(found.items())


def name_targets(targets: Iterable[Target]) -> dict[Target, str | None]:
    """A short name for each target: what tells them apart, hosts and odd values by number.

    Numbers follow the sorted names, so that the order of the lines does not matter. None where the
    file holds one engine that says nothing of itself.
    """
    every = sorted(set(targets))
    engines = sorted({target.program for target in every if not target.is_machine})
    hosts = {
        is_machine: _numbers(
            {"\n".join(target.host) for target in every if target.is_machine is is_machine}
        )
        for is_machine in (False, True)
    }
    values = _values(every)
    names: dict[Target, str | None] = {}
    for target in every:
        words: list[str] = []
        if not target.is_machine and len(engines) > 1:
            words.append(target.program)
        if len(hosts[target.is_machine]) > 1:
            number = hosts[target.is_machine]["\n".join(target.host)]
            words.append(f"{'host' if target.is_machine else 'instance'} {number}")
        shown = [
            (word, _shown(word, value, values[target.program, word]))
            for word, value in target.parts
            if word in _ALWAYS or len(values[target.program, word]) > 1
        ]
        if not words and [word for word, _ in shown] == ["engine"]:
            names[target] = shown[0][1]
            continue
        words += [value if word == "device" else f"{word} {value}" for word, value in shown]
        names[target] = " ".join(words) or None
    return names


def _values(targets: list[Target]) -> dict[tuple[str, str], dict[str, int]]:
    """Numbers of the values of each part of each program."""
    found: dict[tuple[str, str], set[str]] = {}
    words = {(target.program, word) for target in targets for word, _ in target.parts}
    for target in targets:
        parts = dict(target.parts)
        for program, word in words:
            if program == target.program:
                found.setdefault((program, word), set()).update({parts.get(word, "")} - {""})
    return {key: _numbers(values) for key, values in found.items()}


def _numbers(values: set[str]) -> dict[str, int]:
    return {value: number for number, value in enumerate(sorted(values), start=1)}


def _shown(word: str, value: str, numbers: dict[str, int]) -> str:
    """The value if it is a plain name or rank, else its number."""
    plain = _PLAIN if word in _NAMED else _RANK
    if plain.fullmatch(value) is not None and is_name(value):
        return value
    return f"#{numbers[value]}"
