"""Tables of the record, from query results and from replays."""
