"""Sweeps: the cells of a sweep file, which of them share a compiled program, and how they are trained."""
