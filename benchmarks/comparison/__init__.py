"""The comparison of methods on the same splits: protocol, methods, results, tables, command."""
