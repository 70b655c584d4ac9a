-- name: quality/arrivals_missing
-- question: Which requests have no arrival although their source has a clock?
-- grain: one row per offending request
-- params: none
-- reads: requests
-- order: request_key
with clocked_sources as (   -- one row per source that gives at least one arrival
    select distinct source_id
    from requests
    where arrived_at_ns is not null and clock != 'order'
)
select
    served.request_key,                                    -- key: the request (file number and byte offset)
    served.source_id::bigint as source_id,                 -- key: the source, from the manifest
    served.status                                          -- name: how the request ended
from requests as served
join clocked_sources as clocked on clocked.source_id = served.source_id
where served.is_headline and served.arrived_at_ns is null
order by served.request_key
