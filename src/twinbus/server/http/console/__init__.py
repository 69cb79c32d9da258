"""The console: a namespace seen and handled in a browser, at `/$console/`.

Read `route.py` (which page answers a request, and what is refused before), `visit.py`
(one request: who it is from, what it may do, how it is answered) and `sessions.py`
(who is signed in); then `page.py` (templates and headers) and `forms.py` (what people
have typed); then what pages stand on: `looking.py` (a reader beside the turns),
`scanning.py` (searches), `grouping.py` (dead letters by reason), `showing.py` (messages
as data), `actions.py` (commands), `audit.py` (the log of changes), `jobs.py` (work on
many messages), `rates.py` and `live.py` (what follows); then the pages themselves, in
`pages/`. Must not know SQL or AMQP links, and holds no key.
"""
