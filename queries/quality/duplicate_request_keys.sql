-- name: quality/duplicate_request_keys
-- question: Which request keys stand in more than one row?
-- grain: one row per offending request_key
-- params: none
-- reads: requests
-- order: request_key
select
    request_key,                                   -- key: file number and byte offset
    count(*)::bigint as rows                       -- count: rows that carry it
from requests
group by request_key
having count(*) > 1
order by request_key
