"""Whether the instances of a scenario, and how requests reach them, can be replayed."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite

from kvtrace.errors import ModelError
from kvtrace.replay.scenario import Scenario


def check_layout(scenario: Scenario) -> None:
    """Refuse routing, isolation, throttles and a split into prefill and decode that cannot be.

    Raises:
        ModelError: with the first fault; the others are its cause.
    """
    faults = [
        *_routing_faults(scenario),
        *_isolation_faults(scenario),
        *_throttle_faults(scenario),
        *_split_faults(scenario),
        *_generated_faults(scenario),
    ]
    if faults:
        raise ModelError(
            "KVT-R003",
            f"scenario `{scenario.option_id}` cannot be replayed: {faults[0]}",
            cause="\n".join(faults[1:]) or None,
        )


def _routing_faults(scenario: Scenario) -> Iterator[str]:
    if not 0 <= scenario.metadata_age_s < inf:
        yield f"its metadata is {scenario.metadata_age_s:g} s old"
    if not 1 <= scenario.affinity_load_factor < inf:
        yield f"its load factor of {scenario.affinity_load_factor:g} is not 1 or more"


def _isolation_faults(scenario: Scenario) -> Iterator[str]:
    spec = scenario.isolation
    if spec is None:
        return
    prefilling = scenario.prefill_instances or scenario.instances
    if spec.long_prompt_tokens < 0:
        yield "its long prompts have more than a negative number of tokens"
    if not 0 <= spec.long_instances < prefilling:
        yield f"{spec.long_instances} of its {prefilling} instances for long prompts leave none"


def _throttle_faults(scenario: Scenario) -> Iterator[str]:
    for one in scenario.throttles:
        if one.link_id not in scenario.links:
            yield f"a throttle is on the unknown link `{one.link_id}`"
        if not (isfinite(one.bytes_per_s) and one.bytes_per_s > 0):
            yield f"the throttle on `{one.link_id}` is no positive rate"
    most = scenario.request_bytes_per_s
    if most is not None and not (isfinite(most) and most > 0):
        yield "what one move may get is no positive rate"


def _generated_faults(scenario: Scenario) -> Iterator[str]:
    if scenario.stages < 1:
        yield f"{scenario.stages} pipeline stages are less than one"
    if not scenario.keeps_generated:
        if any(tier.takes_generated for tier in scenario.tiers):
            yield "a tier takes generated blocks, which `keeps_generated` does not keep"
        return
    if any(tier.takes_generated and tier.holds_hbm for tier in scenario.tiers):
        yield "a tier that `holds_hbm` holds prompts alone, and takes no generated blocks"


def _split_faults(scenario: Scenario) -> Iterator[str]:
    first = scenario.prefill_instances
    if not first:
        return
    if not 0 < first < scenario.instances:
        yield f"{first} of its {scenario.instances} instances prefill, which leaves none to decode"
    if scenario.kv_admission == "as_needed":
        yield "decode instances take the room of a request at once, not as needed"
    spec = scenario.handoff
    for link_id in () if spec is None else (*spec.out_link_ids, *spec.in_link_ids):
        link = scenario.links.get(link_id)
        if link is None:
            yield f"its hand-off crosses the unknown link `{link_id}`"
        elif not link.bytes_per_s > 0:
            yield f"its hand-off crosses `{link_id}`, which moves nothing"
