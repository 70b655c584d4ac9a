-- name: kv/bytes_distribution
-- question: Which sizes of request carry the KV bytes?
-- grain: one row per kv_bytes_bucket that holds a request
-- params: kv_bytes_per_token DOUBLE = null
-- reads: requests
-- order: kv_bytes_bucket
-- note: no rows without kv_bytes_per_token. Lengths past 2^62 bytes (no LLM has them) share a row.
with prompts as (   -- one row per ok headline request with a known prompt
    select
        prompt_tokens,
        least(prompt_tokens * getvariable('kv_bytes_per_token')::double, 2.0 ** 62)::bigint as kv_bytes
    from requests
    where is_headline
        and status = 'ok'
        and prompt_tokens is not null
        and getvariable('kv_bytes_per_token')::double is not null
),
buckets as (   -- one row per bucket
    select
        case when kv_bytes > 0 then 1::bigint << (length(bin(kv_bytes)) - 1) else 0 end
            as kv_bytes_bucket,
        count(*) as requests,
        sum(prompt_tokens) as prompt_tokens
    from prompts
    group by kv_bytes_bucket
)
select
    kv_bytes_bucket::bigint as kv_bytes_bucket,            -- bytes: lower bound of the half-open range up to twice this; 0 holds empty prompts
    requests::bigint as requests,                          -- requests: in the bucket
    prompt_tokens * getvariable('kv_bytes_per_token')::double as kv_bytes,   -- bytes: KV of their prompts
    prompt_tokens / nullif(sum(prompt_tokens) over (), 0) as kv_bytes_share   -- ratio: of the bytes of all requests
from buckets
order by kv_bytes_bucket
