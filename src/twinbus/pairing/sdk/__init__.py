"""The official client's types: its arguments, messages, values, batches and errors.

Read `conversion.py` (what a sender takes), `messages.py` and `values.py` (as bytes),
`light_message.py` (a message that is cheap to make), `batch.py`, `arguments.py`,
`errors.py` and `counting.py` (receivers with a ledger).
Must not know pairs.
"""
