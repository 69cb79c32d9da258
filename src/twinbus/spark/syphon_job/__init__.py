"""The syphon as a Spark job: drains the backlog queues home.

Read `job.py` (starts it), `source.py` (what Spark calls), `driver.py` with `plan.py`
(which tasks come next), `task.py` (one task, around a pump of `pairing/pump/`); then
`backlog.py`, `access.py`, `journal.py` with `journal_storage.py`, `reports.py` and
`metrics.py`. Must not know rules of its own.
"""
