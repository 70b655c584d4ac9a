"""From paths to records: find, unpack, peel, cut."""
