"""The next GPU by memory, in place of today's: as many of them, in instances of as many ranks."""

from __future__ import annotations

from dataclasses import replace

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.gpus import list_gpus
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.profiles import load_hardware
from kvtrace.errors import KvtraceError
from kvtrace.replay.options.ground import CannotRunError, Ground


def on_bigger_gpu(ground: Ground) -> Ground:
    """The service on the built-in GPU with the next more HBM that can stand in for today's.

    That is one of the same vendor with no lower bf16 peak, a scale-up link where today's has one,
    and nodes that hold an instance as today's do. Instances and ranks stay, so that the number of
    GPUs and the TP are equal, both.

    Raises:
        CannotRunError: there is none.
    """
    deployment = ground.deployment
    for hardware in _bigger(deployment):
        try:
            moved = replace(deployment, hardware=hardware, measured_kv_tokens=None)
            return replace(ground, deployment=_with_room(moved, deployment))
        except KvtraceError:
            continue
    name = deployment.hardware.gpu.name
    raise CannotRunError(f"no GPU of the table has more HBM than {name} and serves as it does")


def _bigger(deployment: Deployment) -> list[HardwareProfile]:
    """By HBM, then by price."""
    today = deployment.hardware
    profiles = [load_hardware(name) for name in list_gpus()]
    fit = [one for one in profiles if _can_replace(one, today, deployment.kv_ranks)]
    return sorted(
        fit, key=lambda one: (one.gpu.hbm_bytes.value, one.gpu_usd_per_hour.value, one.name)
    )


def _can_replace(one: HardwareProfile, today: HardwareProfile, ranks: int) -> bool:
    gpu, now = one.gpu, today.gpu
    return (
        gpu.vendor == now.vendor
        and gpu.hbm_bytes.value > now.hbm_bytes.value
        and gpu.bf16_flops.value >= now.bf16_flops.value
        and one.gpus_per_node >= min(ranks, today.gpus_per_node)
        and (gpu.scaleup_bytes_per_s is not None or now.scaleup_bytes_per_s is None)
    )


def _with_room(moved: Deployment, today: Deployment) -> Deployment:
    """With what a start-up log measured of today's HBM, and what the other GPU has more.

    Formula: measured room + GPUs x (HBM - HBM today) x utilisation.
    """
    if today.measured_kv_tokens is None:
        moved.hbm_cache_bytes  # noqa: B018  refuses weights that do not fit
        return moved
    more = moved.hardware.gpu.hbm_bytes.value - today.hardware.gpu.hbm_bytes.value
    share = moved.hardware.gpu_memory_utilisation.value
    room = today.hbm_cache_bytes + moved.gpus * more * share
    return replace(moved, measured_kv_tokens=int(room / moved.kv_bytes_per_token))
