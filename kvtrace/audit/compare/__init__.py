"""Two audits side by side, and the same requests with a cache off and on."""
