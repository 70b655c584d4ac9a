-- name: kv/summary
-- question: How many bytes of KV do the prompts need, in all and each?
-- grain: one row
-- params: kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null
-- reads: requests, reuse
-- order: requests (a single row)
-- note: every byte figure is null without kv_bytes_per_token; whole-block figures also without
-- note: block_size_tokens. P99 is withheld below 1 000 requests.
with prompts as (   -- one row per ok headline request with a known prompt
    select
        prompt_tokens,
        prompt_tokens * getvariable('kv_bytes_per_token')::double as kv_bytes,
        (
            (prompt_tokens + getvariable('block_size_tokens')::bigint - 1)
            // nullif(getvariable('block_size_tokens')::bigint, 0)
            * getvariable('block_size_tokens')::bigint
        ) as whole_block_tokens
    from requests
    where is_headline and status = 'ok' and prompt_tokens is not null
),
distinct_atoms as (   -- one row per distinct atom of a domain
    select cache_domain, atom, max(block_count) as block_count
    from reuse
    group by cache_domain, atom
),
totals as (   -- one row
    select
        count(*) as requests,
        sum(prompt_tokens) as prompt_tokens,
        sum(whole_block_tokens) as whole_block_tokens,
        (select sum(block_count) from distinct_atoms)
            * getvariable('block_size_tokens')::bigint as distinct_tokens,
        quantile_cont(kv_bytes, 0.5) as kv_bytes_p50,
        quantile_cont(kv_bytes, 0.9) as kv_bytes_p90,
        quantile_cont(kv_bytes, 0.99) as kv_bytes_p99,
        max(kv_bytes) as kv_bytes_max
    from prompts
)
select
    requests::bigint as requests,                          -- requests: `ok` headline requests with a known prompt
    prompt_tokens * getvariable('kv_bytes_per_token')::double as kv_bytes_requested,   -- bytes: prompt tokens × bytes per token
    whole_block_tokens * getvariable('kv_bytes_per_token')::double as kv_bytes_block_rounded,   -- bytes: the same, each prompt rounded up to whole blocks
    distinct_tokens * getvariable('kv_bytes_per_token')::double as kv_bytes_distinct,   -- bytes: all distinct blocks, whole: what an unlimited cache would hold; null without blocks
    prompt_tokens * getvariable('kv_bytes_per_token')::double / nullif(requests, 0) as kv_bytes_mean,   -- bytes: mean per request
    kv_bytes_p50,                                          -- bytes: median per request
    kv_bytes_p90,                                          -- bytes: 90 % of requests need at most this
    case when requests >= 1000 then kv_bytes_p99 end as kv_bytes_p99,   -- bytes: 99 %; null below 1 000 requests
    kv_bytes_max                                           -- bytes: largest request
from totals
order by requests
