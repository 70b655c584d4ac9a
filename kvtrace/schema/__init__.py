"""What a dataset holds: tables, columns, manifest, and the arrays that the models walk."""
