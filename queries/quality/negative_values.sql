-- name: quality/negative_values
-- question: Which requests have a negative count or duration?
-- grain: one row per offending request and field
-- params: none
-- reads: requests
-- order: request_key, field
with measured as (   -- one row per headline request: its counts and durations
    select
        request_key,
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
        tpot_ns,
        e2e_ns
    from requests
    where is_headline
),
fields as (   -- one row per request and known field
    select
        request_key,
        field,
        value
    from (
        unpivot measured
        on
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
            tpot_ns,
            e2e_ns
        into name field value value
    ) as unpivoted
)
select
    request_key,                                   -- key: the request (file number and byte offset)
    field,                                         -- name: column of the requests table
    value::bigint as value                         -- `field`: the negative value, in the unit of the field
from fields
where value < 0
order by request_key, field
