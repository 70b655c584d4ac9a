"""The SLO, and how few instances keep it, by replays."""
