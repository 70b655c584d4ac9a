-- name: quality/reuse_beyond_prompt
-- question: Which requests would reuse more tokens than their prompt has?
-- grain: one row per offending request
-- params: none
-- reads: requests, reuse
-- order: request_key
with reused_requests as (   -- one row per request with reusable blocks
    select
        request_key,
        sum(token_count) as reusable_tokens
    from reuse
    where is_reusable
    group by request_key
)
select
    served.request_key,                                    -- key: the request (file number and byte offset)
    served.prompt_tokens,                                  -- tokens: of the prompt
    reused.reusable_tokens::bigint as reusable_tokens      -- tokens: in its reusable blocks
from requests as served
join reused_requests as reused on reused.request_key = served.request_key
where reused.reusable_tokens > served.prompt_tokens
order by served.request_key
