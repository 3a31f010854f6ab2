"""Many runs from one file: its cells, which of them share a program, and how they are trained."""
