-- name: quality/ttft_above_e2e
-- question: Which requests had their first token after their last?
-- grain: one row per offending request
-- params: none
-- reads: requests
-- order: request_key
select
    request_key,                                   -- key: the request (file number and byte offset)
    ttft_ns / 1e6 as ttft_ms,                      -- ms: time to first token, as the source counts it
    e2e_ns / 1e6 as e2e_ms                         -- ms: arrival to last token
from requests
where is_headline and (ttft_ns > e2e_ns or list_contains(flags, 'ttft_above_e2e'))
order by request_key
