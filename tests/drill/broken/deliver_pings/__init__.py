"""A primary that keeps pings."""
