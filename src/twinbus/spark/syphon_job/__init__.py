"""The syphon as a Spark job: moves the backlog queues to the primary.

Read `job.py` (starts it), `source.py` (what Spark calls), `driver.py` (which tasks come
next), `backlog.py` (what the queues hold), `task.py` (one task, around a pump of
`pairing/pump/`), `access.py` (tokens and connections); then `journal.py` (receipts) and
`reports.py` (progress), both kept by `storage.py`, and `metrics.py`. Must not know
rules of its own.
"""
