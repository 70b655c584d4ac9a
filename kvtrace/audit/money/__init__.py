"""What freed GPU time is worth and what options cost a month."""
