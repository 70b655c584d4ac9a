"""The options of a comparison, built on a service: those that can be, and why others not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from kvtrace.cost.quantise import QuantisedPrefill, QuantisedStep, conversion_s_per_token
from kvtrace.cost.tco.need import Need
from kvtrace.errors import ModelError, UsageError
from kvtrace.replay.engines import find_engine
from kvtrace.replay.options.bigger_gpu import on_bigger_gpu
from kvtrace.replay.options.ground import (
    CannotRunError,
    Ground,
    at_port_rate,
    in_fp8,
    line_bits_per_s,
    with_more_nodes,
)
from kvtrace.replay.options.local_tiers import idle_dram, local_nvme
from kvtrace.replay.options.observed import OBSERVED_WORDS, above, observed_tiers
from kvtrace.replay.options.option import AbsentOption, Catalogue, ReplayOption
from kvtrace.replay.options.parts import Parts
from kvtrace.replay.options.pool_tiers import PLACES, with_ports
from kvtrace.replay.options.recipes import Recipe, find_recipe, mixes, recipes
from kvtrace.replay.scenario import IsolationSpec, LoadDecision, Scenario

_AS_NEEDED_ENGINE: Final = "vllm"
"""Whose block size as-needed admission takes."""


def build_catalogue(ground: Ground, *, is_full: bool) -> Catalogue:
    """All options, or those of `--depth quick`; what cannot be replayed is absent with its reason.

    Raises:
        ModelError: the LLM does not fit, or its FLOPs are not known.
    """
    chosen = [one for one in recipes(ground.fleet.instances) if _is_apart_from_stated(one, ground)]
    wanted = [one for one in chosen if is_full or one.is_quick]
    options: list[ReplayOption] = []
    absent: list[AbsentOption] = []
    for recipe in wanted:
        try:
            _require_sense(recipe, ground)
            options.append(build_option(recipe, ground))
        except CannotRunError as error:
            absent.append(AbsentOption(recipe.option_id, recipe.title, str(error)))
    return Catalogue(tuple(options), _once(absent), len(chosen) - len(wanted))


def _is_apart_from_stated(recipe: Recipe, ground: Ground) -> bool:
    """A rate that the hardware's ports have already is no option beside the stated one."""
    return recipe.port_bits_per_s != line_bits_per_s(ground)


def _once(absent: Iterable[AbsentOption]) -> tuple[AbsentOption, ...]:
    """Of options that are absent for one reason, a base tells it for its variants."""
    kept: list[AbsentOption] = []
    for one in absent:
        if not any(one.reason == k.reason and one.option_id.startswith(k.option_id) for k in kept):
            kept.append(one)
    return tuple(kept)


def _require_sense(recipe: Recipe, ground: Ground) -> None:
    """Refuse what can be replayed, but is another option again on this fleet.

    Raises:
        CannotRunError: it is.
    """
    fleet = ground.fleet
    if recipe.is_kv_routed and fleet.instances == 1:
        raise CannotRunError("one instance has nothing to route")
    if recipe.has_own_instances and not 0 < ground.long_instances < fleet.instances:
        raise CannotRunError("the instances are too few to keep some for long prompts")
    if recipe.place == "peer_dram" and fleet.gpu_nodes < 2:
        raise CannotRunError("the instances stand on one GPU node, which has no peers")
    is_idle = recipe.parts is idle_dram or recipe.is_over_idle_dram
    if is_idle and not fleet.dram_idle_bytes_per_instance.value:
        raise CannotRunError("the fleet file says that no host DRAM is free for KV")
    if recipe.place == "peer_dram" and not fleet.dram_idle_bytes_per_instance.value:
        raise CannotRunError("the fleet file says that no DRAM of the GPU nodes is free")


def find_option(option_id: str, ground: Ground) -> ReplayOption | None:
    """One option by its id, any mix included; null where there is no such option here.

    On other instances than the stated ones it is found where it is found on those.

    Raises:
        ModelError: the LLM does not fit, or its FLOPs are not known.
    """
    recipe = find_recipe(option_id)
    try:
        return None if recipe is None else build_option(recipe, ground)
    except CannotRunError:
        return None


def build_mixes(ground: Ground) -> Iterator[ReplayOption]:
    """The mixes of pools that are possible here; see `recipes.mixes`."""
    for recipe in mixes(ground.fleet.instances):
        try:
            _require_sense(recipe, ground)
            yield build_option(recipe, ground)
        except CannotRunError:
            continue


def build_option(
    recipe: Recipe,
    ground: Ground,
    *,
    load_decision: LoadDecision = "always",
) -> ReplayOption:
    """The option on the service.

    Raises:
        CannotRunError: it is not possible here.
        ModelError: the LLM does not fit, or its FLOPs are not known.
    """
    there = _changed(recipe, ground)
    parts = _parts(recipe, there)
    scenario = _scenario(recipe, there, parts)
    need = parts.need
    if recipe.is_quantised:
        scenario = _quantising(scenario, ground, there)
    if recipe.wire is not None:
        need = with_ports(need, ground, recipe.wire, recipe.port_bits_per_s)
    return ReplayOption(
        scenario=replace(_running(recipe, scenario, ground), load_decision=load_decision),
        family=recipe.family,
        need=_with_gpu(need, recipe, there),
        place=recipe.place,
        wire=recipe.wire,
        port_bits_per_s=recipe.port_bits_per_s,
        is_quantised=recipe.is_quantised,
        is_quick=recipe.is_quick,
    )


def _changed(recipe: Recipe, ground: Ground) -> Ground:
    """The service as the option makes it."""
    is_apart = recipe.is_isolated or recipe.has_own_instances
    if is_apart and ground.long_prompt_tokens is None:
        raise CannotRunError("no prompts stand out as long: all are of about one length")
    if recipe.family == "hardware":
        ground = on_bigger_gpu(ground)
    if recipe.port_bits_per_s is not None:
        ground = at_port_rate(ground, recipe.port_bits_per_s)
    if recipe.pool_times != 1:
        ground = with_more_nodes(ground, recipe.pool_times)
    return in_fp8(ground) if recipe.is_quantised else ground


def _parts(recipe: Recipe, there: Ground) -> Parts:
    if recipe.place is None or recipe.wire is None:
        return recipe.parts(there)
    pool = PLACES[recipe.place](there, recipe.wire)
    return above(idle_dram(there), pool) if recipe.is_over_idle_dram else pool


def _scenario(recipe: Recipe, there: Ground, parts: Parts) -> Scenario:
    deployment = there.deployment
    try:
        return Scenario(
            option_id=recipe.option_id,
            title=_title(recipe, there),
            instances=there.fleet.instances,
            kv_bytes_per_token=deployment.kv_bytes_per_token,
            hbm_capacity_bytes=deployment.group_cache_bytes,
            tiers=parts.tiers,
            links={link.link_id: link for link in parts.links},
            prefill=deployment.prefill,
            decode=deployment.decode,
            step=deployment.step,
            stages=deployment.pp,
            prefill_chunk_tokens=deployment.prefill_chunk_tokens,
            running_requests=deployment.measured_running_requests or 0,
            reuse=recipe.has_reuse,
            routing="kv_centric" if recipe.is_kv_routed else "least_loaded",
        )
    except (ModelError, UsageError) as error:
        if recipe.family == "hardware" or recipe.is_quantised:
            raise CannotRunError(error.message) from error
        raise


def _title(recipe: Recipe, there: Ground) -> str:
    """With what only the service says: the other GPU, where today's KV lies, what is bought."""
    if recipe.family == "hardware":
        gpu = there.deployment.hardware.gpu.name
        return recipe.title.replace("Bigger GPU", f"Bigger GPU ({gpu})", 1)
    if recipe.parts is local_nvme and not there.fleet.nvme_free_bytes_per_instance.value:
        return recipe.title.replace("local SSD", "bought local SSD", 1)
    if recipe.parts is observed_tiers:
        words = OBSERVED_WORDS[there.fleet.below_hbm.value]
        return recipe.title.replace("As observed", f"As observed ({words})", 1)
    return recipe.title


def _running(recipe: Recipe, scenario: Scenario, ground: Ground) -> Scenario:
    """With what the option changes of how an engine runs."""
    long_tokens = ground.long_prompt_tokens
    if long_tokens is not None and (recipe.is_isolated or recipe.has_own_instances):
        most = ground.fleet.instances - 1
        kept = min(ground.long_instances, most) if recipe.has_own_instances else 0
        scenario = replace(scenario, isolation=IsolationSpec(long_tokens, kept))
    if recipe.is_as_needed:
        tokens = find_engine(_AS_NEEDED_ENGINE).block_tokens
        scenario = replace(scenario, kv_admission="as_needed", kv_block_tokens=tokens)
    return scenario


def _quantising(scenario: Scenario, stated: Ground, there: Ground) -> Scenario:
    """With the time to pack and unpack KV; the format of today is the wide one."""
    wide = replace(there.deployment, kv_dtype=stated.deployment.kv_dtype, measured_kv_tokens=None)
    token_s = conversion_s_per_token(wide, there.deployment)
    return replace(
        scenario,
        prefill=QuantisedPrefill(there.deployment.prefill, token_s),
        step=QuantisedStep(there.deployment.step, token_s),
    )


def _with_gpu(need: Need, recipe: Recipe, there: Ground) -> Need:
    if recipe.family != "hardware":
        return need
    return replace(need, gpu=there.deployment.hardware.gpu.name)
