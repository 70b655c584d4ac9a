-- name: quality/cached_above_prompt
-- question: Which requests claim more cached tokens than they have prompt tokens?
-- grain: one row per offending request
-- params: none
-- reads: requests
-- order: request_key
select
    request_key,                                   -- key: the request (file number and byte offset)
    prompt_tokens,                                 -- tokens: of the prompt
    cached_tokens                                  -- tokens: said to come from a cache
from requests
where is_headline and (cached_tokens > prompt_tokens or list_contains(flags, 'cached_above_prompt'))
order by request_key
