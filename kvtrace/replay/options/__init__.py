"""The options that an audit compares, as scenarios with what each of them needs."""
