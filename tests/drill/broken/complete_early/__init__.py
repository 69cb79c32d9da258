"""Syphons that complete a message before it is sent home."""
