"""What another link, pool, price, number format or load would change: an estimate for the page."""
