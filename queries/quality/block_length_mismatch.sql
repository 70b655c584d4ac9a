-- name: quality/block_length_mismatch
-- question: Which requests have blocks that do not fit their prompt length?
-- grain: one row per offending request
-- params: block_size_tokens BIGINT = null
-- reads: requests, blocks
-- order: request_key
-- note: a prompt may reach less than one block past its whole blocks, where the source leaves the
-- note: partial tail out. No rows without block_size_tokens: nothing can be checked then.
with block_lengths as (   -- one row per request with blocks
    select
        request_key,
        sum(block_count) as blocks,
        max(tail_tokens) as tail_tokens,
        sum(block_count) * getvariable('block_size_tokens')::bigint
            - case
                when max(tail_tokens) > 0
                then getvariable('block_size_tokens')::bigint - max(tail_tokens)
                else 0
            end as block_tokens
    from blocks
    group by request_key
)
select
    served.request_key,                                -- key: the request (file number and byte offset)
    served.prompt_tokens,                              -- tokens: of the prompt
    lengths.blocks::bigint as blocks,                  -- blocks: of the request
    lengths.block_tokens::bigint as block_tokens       -- tokens: in these blocks
from requests as served
join block_lengths as lengths on lengths.request_key = served.request_key
where served.is_headline
    and (
        served.prompt_tokens < lengths.block_tokens
        or served.prompt_tokens - lengths.block_tokens >= case
            when lengths.tail_tokens > 0 then 1
            else getvariable('block_size_tokens')::bigint
        end
    )
order by served.request_key
