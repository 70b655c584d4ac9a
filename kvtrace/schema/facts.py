"""The tables computed from those of the logs: reuse, conversations, stays, simulated caches.

Those made with the dataset come first; derived ones are made later, with parameters.
"""

from __future__ import annotations

from typing import Final

from kvtrace.schema.table import UNKNOWN, Column, Table

REUSE: Final = Table(
    "reuse",
    "one atom of one `ok` headline request: a run of blocks that is always touched together",
    (
        Column("request_key", "int64", "key", "the request"),
        Column("cache_domain", "int32", "key", "the cache domain"),
        Column(
            "arrival_rank", "int64", "rank", "of the request in its domain, by arrival then key"
        ),
        Column("position", "int32", "blocks", "blocks of the request before this atom"),
        Column("atom", "int64", "id", "dense atom id in the domain"),
        Column("block_count", "int32", "blocks", "blocks of the atom"),
        Column("token_count", "int64", "tokens", "prompt tokens of this request in the atom"),
        Column("is_reusable", "bool", "flag", "an earlier request held it, and all before it"),
        Column(
            "previous_request_key",
            "int64",
            "key",
            "last earlier request that held it",
            "first seen",
        ),
        Column(
            "reuse_gap_ns",
            "int64",
            "ns",
            "arrival minus that of the previous holder",
            "first seen, or no clock",
        ),
        Column("first_request_key", "int64", "key", "first request that held it"),
        Column(
            "distance_blocks",
            "int64",
            "blocks",
            "LRU stack distance of the head, from 1, running maximum in the request",
            "not reusable",
        ),
        Column(
            "distance_tokens",
            "int64",
            "tokens",
            "the same, blocks weighted by their tokens",
            "not reusable",
        ),
    ),
    ("request_key", "position"),
)

CONTINUATIONS: Final = Table(
    "continuations",
    "one `ok` headline request of a cache domain, as a turn of a conversation",
    (
        Column("request_key", "int64", "key", "the request"),
        Column("cache_domain", "int32", "key", "the cache domain; parents are of the same"),
        Column("conversation", "int64", "id", "dense in the domain, in order of first appearance"),
        Column(
            "turn",
            "int32",
            "count",
            "requests above it along the parents; 0 opens a conversation in this dataset",
        ),
        Column(
            "known_from",
            "text",
            "name",
            "what decided on the parent: parent_key | session_key | blocks (the full-block rule)",
        ),
        Column("parent_request_key", "int64", "key", "the request it goes on from", "opens one"),
        Column(
            "block_parent_request_key",
            "int64",
            "key",
            "the parent by the full-block rule, whatever the logs say: the deepest, then latest"
            " earlier request whose full blocks are all a prefix of its own",
            "none by that rule",
        ),
        Column(
            "repeat_of_request_key",
            "int64",
            "key",
            "the latest earlier request with the same blocks and prompt length",
            "the prompt is new",
        ),
        Column("full_blocks", "int64", "blocks", "of the prompt, without a partial last one"),
        Column("block_size_tokens", "int64", "tokens", "of the domain's blocks"),
        Column("parent_full_blocks", "int64", "blocks", "full blocks of the parent", "no parent"),
        Column(
            "shared_blocks",
            "int64",
            "blocks",
            "leading full blocks in common with the parent",
            "no parent",
        ),
        Column("shared_tokens", "int64", "tokens", "in these", "no parent"),
        Column(
            "gap_ns", "int64", "ns", "arrival minus the parent's arrival", "no parent, or no clock"
        ),
    ),
    ("request_key",),
)

BLOCK_STAYS: Final = Table(
    "block_stays",
    "one stay of one block in one medium of one instance, from the event that began it",
    (
        Column("event_key", "int64", "key", "the record of `block_events` that began the stay"),
        Column("position", "int32", "count", "and the row of that record"),
        Column("instance", "text", "name", "engine and data-parallel rank", "one instance"),
        Column("block_key", "uint64", "keyed hash", "the block, as in `block_events`", keyed=True),
        Column("block_tokens", "int32", "tokens", "tokens of the block", UNKNOWN),
        Column("medium", "text", "name", "device | host | disk | remote", UNKNOWN),
        Column("started_at_ns", "int64", "ns", "time of the event that began it", "no clock"),
        Column(
            "ended_at_ns", "int64", "ns", "time of the event that ended it", "open, or no clock"
        ),
        Column("end_event_key", "int64", "key", "the record that ended the stay", "open"),
        Column("end_position", "int32", "count", "and the row of that record", "open"),
        Column(
            "began",
            "text",
            "name",
            "computed | loaded (stored in HBM; loaded: a tier below held it) | copied | written"
            " (stored below HBM; copied: HBM of the instance held it) | moved (the engine says so)"
            " | announced (stored, medium unknown)",
        ),
        Column(
            "from_medium",
            "text",
            "name",
            "where it came from: as the engine says (moved), the nearest that held it (loaded), HBM"
            " (copied)",
            "computed, written or announced, or the source does not say",
        ),
        Column(
            "ended",
            "text",
            "name",
            "removed | moved | cleared (the instance lost all) | restarted (a new process)"
            " | open (held at the last event)",
        ),
        Column(
            "place",
            "text",
            "name",
            "where a block that is stored in HBM was just before, the first that holds: first_seen"
            " | lower_tier_holds | other_instance_holds | same_instance_removed"
            " | other_instance_removed",
            "not computed or loaded",
        ),
        Column(
            "since_stored_ns",
            "int64",
            "ns",
            "since the last stay of the block began, on any instance",
            "first seen, not computed or loaded, or no clock",
        ),
        Column(
            "since_held_ns",
            "int64",
            "ns",
            "since the last instance that held it let go of it; 0 while one holds it",
            "first seen, not computed or loaded, or no clock",
        ),
    ),
    ("event_key", "position"),
)

POLICY_HITS: Final = Table(
    "policy_hits",
    "what one cache of one size under one policy serves of the requests of a cache domain",
    (
        Column("cache_domain", "int32", "key", "the cache domain"),
        Column(
            "policy",
            "text",
            "name",
            "lru | leaf_lru | fifo | lfu | arc | s3_fifo | length_aware | ttl, or a bound:"
            " strict_optimum_low | strict_optimum_high | relaxed_optimum | unlimited",
        ),
        Column(
            "admission", "text", "name", "all | second_use (written from the second request on)"
        ),
        Column("weight", "text", "name", "blocks (each weighs 1) | tokens (a partial block less)"),
        Column("capacity_blocks", "int64", "blocks", "capacity; of full blocks where tokens weigh"),
        Column("capacity_tokens", "int64", "tokens", "capacity", "blocks weigh"),
        Column("ttl_ns", "int64", "ns", "a block is gone this long after its last use", "not ttl"),
        Column("hit_blocks", "int64", "blocks", "references served from the cache"),
        Column("hit_tokens", "int64", "tokens", "prompt tokens served from the cache"),
        Column("block_refs", "int64", "blocks", "references in all"),
        Column("prompt_tokens", "int64", "tokens", "prompt tokens of all requests"),
        Column("writes_blocks", "int64", "blocks", "blocks written into the cache", "a bound"),
        Column("writes_tokens", "int64", "tokens", "tokens of those blocks", "a bound"),
        Column("requests", "int64", "requests", "requests of the domain"),
        Column("requests_with_hit", "int64", "requests", "with at least one block served"),
    ),
    ("cache_domain", "weight", "capacity_blocks", "policy", "admission", "ttl_ns"),
    is_derived=True,
)

POOL_HITS: Final = Table(
    "pool_hits",
    "what private caches of some sizes serve under one routing, and what a shared pool adds",
    (
        Column("cache_domain", "int32", "key", "the cache domain"),
        Column(
            "routing",
            "text",
            "name",
            "round_robin | session_sticky | kv_centric (index without evictions)"
            " | kv_centric_exact (index of what the private caches hold)",
        ),
        Column("instances", "int64", "count", "instances that the requests are routed to"),
        Column("hbm_blocks", "int64", "blocks", "capacity of each instance's HBM; 0: none"),
        Column("dram_blocks", "int64", "blocks", "capacity of each instance's DRAM behind it"),
        Column("pool_blocks", "int64", "blocks", "capacity of the pool that all share; 0: none"),
        Column("hbm_hit_blocks", "int64", "blocks", "references served from the instance's HBM"),
        Column("hbm_hit_tokens", "int64", "tokens", "prompt tokens served from it"),
        Column("dram_hit_blocks", "int64", "blocks", "served from the instance's DRAM beyond HBM"),
        Column("dram_hit_tokens", "int64", "tokens", "prompt tokens served from it"),
        Column("pool_hit_blocks", "int64", "blocks", "served from the pool beyond both"),
        Column("pool_hit_tokens", "int64", "tokens", "prompt tokens served from it"),
        Column("requests", "int64", "requests", "requests routed"),
        Column("block_refs", "int64", "blocks", "references in all"),
        Column("prompt_tokens", "int64", "tokens", "prompt tokens of all requests"),
        Column("busiest_prompt_tokens", "int64", "tokens", "of the instance that got most"),
        Column(
            "busiest_computed_tokens",
            "int64",
            "tokens",
            "prompt tokens not served from any cache, of the instance with most of them",
        ),
    ),
    ("cache_domain", "routing", "instances", "hbm_blocks", "dram_blocks", "pool_blocks"),
    is_derived=True,
)
