"""The console on a real server, over HTTP and in a real browser.

`site.py` has the server and a client that signs in; `browser.py` has Chromium.
"""
