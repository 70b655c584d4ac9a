-- name: coverage/statuses
-- question: How did requests end?
-- grain: one row per status that occurs
-- params: none
-- reads: requests
-- order: status
select
    status,                                                -- name: ok | error | cancelled | gateway_cache_hit | open
    count(*)::bigint as requests,                          -- requests: headline requests with this status
    sum(prompt_tokens)::bigint as prompt_tokens            -- tokens: of these, where known; null when nowhere
from requests
where is_headline
group by status
order by status
