"""Optimisations from small designs: problems, methods, and how they compare."""
