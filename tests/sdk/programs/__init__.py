"""Programs for the official client, as an application has them.

Each is written for `azure-servicebus` and prints what it sees. `test_drop_in.py` runs
them as they are, and again with the import and the class name exchanged. They know
nothing of twinbus: where the namespace is, they read from the environment.
"""
