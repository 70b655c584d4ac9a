-- name: moves/measured_rates
-- question: How fast did KV really move, path by path?
-- grain: one row per direction and path
-- params: none
-- reads: transfers
-- order: direction, path
-- note: the rate of a path is all its bytes over all its seconds, over moves that know both. A row of
-- note: a connector that pools its ranks holds the sum of their seconds: the rate is then of one rank.
with moves as (   -- one row per observed move
    select
        direction,
        path,
        moved_bytes,
        moved_tokens,
        ranks,
        duration_ns / 1e9 as duration_s,
        case when duration_ns > 0 then moved_bytes / (duration_ns / 1e9) end as bytes_per_s,
        transfer_key
    from transfers
),
known as (   -- one row per direction and path
    select
        direction,
        path,
        count(*) as transfers,
        count(bytes_per_s) as timed_transfers,
        sum(moved_bytes) as moved_bytes,
        sum(moved_tokens) as moved_tokens,
        max(ranks) as ranks_max,
        sum(moved_bytes) filter (where bytes_per_s is not null) as timed_bytes,
        fsum(duration_s order by transfer_key) filter (where bytes_per_s is not null) as timed_s,
        fsum(duration_s order by transfer_key)
            filter (where duration_s > 0 and moved_tokens > 0) as token_timed_s,
        sum(moved_tokens) filter (where duration_s > 0 and moved_tokens > 0) as timed_tokens,
        quantile_cont(duration_s, [0.5, 0.9, 0.99]) as duration_quantiles,
        quantile_cont(bytes_per_s, [0.1, 0.5, 0.9]) as rate_quantiles,
        quantile_cont(moved_bytes, 0.5) filter (where bytes_per_s is not null) as bytes_p50
    from moves
    group by direction, path
)
select
    direction,                                                      -- name: load (to HBM) | store (from HBM) | hand_off
    path,                                                           -- name: as far as the source says; null: it does not
    transfers::bigint as transfers,                                 -- count: observed moves
    timed_transfers::bigint as timed_transfers,                     -- count: of these, with bytes and seconds
    moved_bytes::bigint as moved_bytes,                             -- bytes: moved; null: no move says
    moved_tokens::bigint as moved_tokens,                           -- tokens: moved; null: no move says
    ranks_max::bigint as ranks_max,                                 -- count: most ranks pooled in one move
    timed_bytes / nullif(timed_s, 0) as bytes_per_s,                -- bytes/s: all bytes over all seconds of the timed moves
    rate_quantiles[1] as bytes_per_s_p10,                           -- bytes/s: 10 % of the moves are slower
    rate_quantiles[2] as bytes_per_s_p50,                           -- bytes/s: median move
    rate_quantiles[3] as bytes_per_s_p90,                           -- bytes/s: 10 % of the moves are faster
    bytes_p50,                                                      -- bytes: median timed move
    duration_quantiles[1] as duration_p50_s,                        -- s: median move
    duration_quantiles[2] as duration_p90_s,                        -- s: 10 % of the moves take longer
    case when transfers >= 1000 then duration_quantiles[3] end as duration_p99_s,   -- s: 1 % take longer; null below 1 000 moves
    timed_tokens / nullif(token_timed_s, 0) as tokens_per_s         -- tokens/s: over moves that know tokens and seconds
from known
order by direction, path nulls first
