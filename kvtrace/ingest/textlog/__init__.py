"""Text logs: lines of several programs in one file, peeled, dated and given to their dialects."""
