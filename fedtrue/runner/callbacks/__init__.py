"""Callbacks: what they see, when they are called, and the ready ones."""
