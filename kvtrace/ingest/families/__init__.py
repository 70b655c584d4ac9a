"""What several formats of one family share."""
