"""Lines and dumps of SGLang for tests."""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
import types
from collections.abc import Iterable, Iterator

import pytest

from kvtrace.ingest.contract import Metric, SampleRow


def log(*messages: str, label: str = "") -> bytes:
    """Messages behind SGLang's prefix, one second apart."""
    blank = f" {label}" if label else ""
    stamped = [
        f"[2025-12-01 09:00:{second:02d}{blank}] {message}\n"
        for second, message in enumerate(messages)
    ]
    return "".join(stamped).encode()


def metric_of(sample: SampleRow, name: str) -> Metric:
    """The sample's metric of this name."""
    (found,) = [metric for metric in sample.metrics if metric.metric == name]
    return found


class _Named:
    """Instances pickle as those of another module's class, which need not exist here."""


def pickled(value: object, *, protocol: int = 4) -> bytes:
    """The pickle of a value with objects of SGLang; its modules exist only meanwhile."""
    out = io.BytesIO()
    with _modules_of(value):
        pickle.Pickler(out, protocol).dump(value)
    return out.getvalue()


@contextlib.contextmanager
def _modules_of(value: object) -> Iterator[None]:
    made = {type(part) for part in _parts(value) if isinstance(part, _Named)}
    modules: dict[str, types.ModuleType] = {}
    for kind in made:
        names = kind.__module__.split(".")
        for end in range(1, len(names) + 1):
            path = ".".join(names[:end])
            modules.setdefault(path, types.ModuleType(path))
        setattr(modules[kind.__module__], kind.__name__, kind)
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        yield


def _parts(value: object) -> Iterator[object]:
    yield value
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    elif isinstance(value, _Named):
        inner = vars(value).values()
    for part in inner:
        yield from _parts(part)


_KINDS: dict[str, type[_Named]] = {}


def server_args(**fields: object) -> object:
    """SGLang's arguments as a dump has them."""
    return _of("sglang.srt.server_args.ServerArgs", fields)


def request(**fields: object) -> object:
    """A request as a dump has it."""
    return _of("sglang.srt.managers.io_struct.GenerateReqInput", fields)


def _of(path: str, fields: dict[str, object]) -> object:
    module_name, _, name = path.rpartition(".")
    kind = _KINDS.setdefault(
        path, type(name, (_Named,), {"__module__": module_name, "__qualname__": name})
    )
    made = kind()
    made.__dict__.update(fields)
    return made
