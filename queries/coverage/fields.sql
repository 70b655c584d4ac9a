-- name: coverage/fields
-- question: Which fields does the source fill, and for how many requests?
-- grain: one row per field of the requests table that may be unknown
-- params: none
-- reads: requests
-- order: field
with counted as (   -- one row: known values of each field over headline requests of every status
    select
        count(*) as requests,
        count(request_id_key) as request_id_key,
        count(session_key) as session_key,
        count(parent_key) as parent_key,
        count(turn) as turn,
        count(tenant_key) as tenant_key,
        count(user_key) as user_key,
        count(llm) as llm,
        count(adapter) as adapter,
        count(request_type) as request_type,
        count(arrived_at_ns) as arrived_at_ns,
        count(prompt_tokens) as prompt_tokens,
        count(cached_tokens) as cached_tokens,
        count(cached_device_tokens) as cached_device_tokens,
        count(cached_host_tokens) as cached_host_tokens,
        count(cached_disk_tokens) as cached_disk_tokens,
        count(cached_remote_tokens) as cached_remote_tokens,
        count(cache_write_tokens) as cache_write_tokens,
        count(computed_tokens) as computed_tokens,
        count(output_tokens) as output_tokens,
        count(queue_ns) as queue_ns,
        count(prefill_ns) as prefill_ns,
        count(ttft_ns) as ttft_ns,
        count(ttft_from) as ttft_from,
        count(tpot_ns) as tpot_ns,
        count(e2e_ns) as e2e_ns
    from requests
    where is_headline
),
fields as (   -- one row per field
    select
        field,
        known_requests,
        requests
    from (
        unpivot counted
        on
            request_id_key,
            session_key,
            parent_key,
            turn,
            tenant_key,
            user_key,
            llm,
            adapter,
            request_type,
            arrived_at_ns,
            prompt_tokens,
            cached_tokens,
            cached_device_tokens,
            cached_host_tokens,
            cached_disk_tokens,
            cached_remote_tokens,
            cache_write_tokens,
            computed_tokens,
            output_tokens,
            queue_ns,
            prefill_ns,
            ttft_ns,
            ttft_from,
            tpot_ns,
            e2e_ns
        into name field value known_requests
    ) as unpivoted
)
select
    field,                                                 -- name: column of the requests table
    known_requests::bigint as known_requests,              -- requests: that know it
    requests::bigint as requests,                          -- requests: headline requests of every status
    known_requests / nullif(requests, 0) as known_ratio    -- ratio: known_requests / requests
from fields
order by field
