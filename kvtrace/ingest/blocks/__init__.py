"""Block ids, block sizes and the blocks table."""
