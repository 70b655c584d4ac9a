"""Who may share a cache: what each scope keeps of the reuse, and what isolation costs."""
