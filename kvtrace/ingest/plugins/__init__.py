"""Formats that other packages bring, by the entry points of the group `kvtrace.ingesters`."""
