"""Every bound of the system, with its unit last and its reason.

A limit lives here or it does not exist. Nothing else belongs in this file.
"""

from __future__ import annotations

# -- codec -------------------------------------------------------------------------

# Values of this size are decoded once and kept: paths, session ids and times repeat.
CACHED_VALUE_BYTES_MAX = 64
# The SDKs nest at most a handful of levels; the Python SDK itself stops at 64.
CODEC_DEPTH_MAX = 32
# Values in one performative. The largest honest one is an attach with some filters.
PERFORMATIVE_NODES_MAX = 1024
# Values in one message section that the broker decodes (never the body).
SECTION_NODES_MAX = 16 * 1024
# Values that an input may hold beyond one per byte. Only elements of arrays can take
# no bytes at all; 64 of them at 64 bytes each are 4 KiB.
CODEC_FREE_NODES = 64

# -- frames ------------------------------------------------------------------------

# What the real service announces.
FRAME_BYTES_MAX = 64 * 1024
# The smallest frame size that AMQP allows a peer to announce.
FRAME_BYTES_MIN = 512
# The specification's figure.
DELIVERY_TAG_BYTES_MAX = 32
# Larger frames than this gain nothing, and a peer may announce 4 GiB.
FRAME_BYTES_OUT_MAX = 1024 * 1024

# -- handshake: a peer before its first claim --------------------------------------

# Large enough for a long bearer token; 10,000 silent peers cost 80 MiB.
# RabbitMQ uses the same figure.
HANDSHAKE_FRAME_BYTES_MAX = 8 * 1024
# All bytes of one peer before its first claim.
HANDSHAKE_BYTES_MAX = 64 * 1024
# RabbitMQ and Artemis both wait this long for a login.
HANDSHAKE_SECONDS_MAX = 10
# Sessions and links of a peer without a claim. The SDKs need one session and two links;
# each costs memory that 64 KiB of bytes would multiply by sixty.
HANDSHAKE_SESSIONS_MAX = 8
HANDSHAKE_LINKS_MAX = 8
# Refused tokens of one address that are explained and logged: this many at once ...
TOKEN_FAILURES_MAX = 10
# ... and then so many a second. A key has 256 bits; this is against noise.
TOKEN_FAILURES_PER_SECOND = 1
# Requests of one address over HTTP without a valid claim, such as those of monitors for
# `/health`: this many at once ...
STRANGER_REQUESTS_MAX = 100
# ... and then so many a second. One costs about 0.3 ms of a core: 2 % are theirs.
STRANGER_REQUESTS_PER_SECOND = 50
# What `Retry-After` says to an address that has used them up.
STRANGER_RETRY_AFTER_SECONDS = 1
# Addresses whose buckets are remembered; 10,000 cost about 2 MiB.
BUCKET_ADDRESSES_MAX = 10_000

# -- tokens and keys ---------------------------------------------------------------

# A key that the server makes: as long as Azure's.
KEY_BYTES = 32
TOKEN_BYTES_MAX = 1024
# Tokens of Entra have 1 to 3 KiB; groups make them longer. As a handshake frame.
BEARER_TOKEN_BYTES_MAX = 8 * 1024
# The end of year 9999, in seconds since the epoch: the last second that clients print.
TOKEN_EXPIRY_SECONDS_MAX = 253_402_300_799
# The shortest key that may take the place of the documented one where other machines
# reach the server: 32 bytes in base64, without the padding.
DEV_KEY_CHARS_MIN = 43
# Long enough for any generated key; HMAC would take more, a form field should not.
KEY_CHARS_MAX = 256
KEY_NAME_CHARS_MAX = 256
AUTHORIZATION_RULES_MAX = 12
# How often the file with an issuer's keys is looked at, when tokens come.
JWKS_LOOK_SECONDS = 5
# Smaller keys are not trusted any more; NIST ended 1,024 bits in 2013.
RSA_KEY_BITS_MIN = 2048

# -- connections -------------------------------------------------------------------

# How often a connection is looked at for silence, at most.
IDLE_LOOK_SECONDS = 15.0
# Azure's figure for AMQP.
CONNECTIONS_MAX = 5000
# One machine must not take all of them. Loopback is exempt.
CONNECTIONS_PER_ADDRESS_MAX = 1000
# Azure announces 4,999 as channel-max. The JavaScript SDK uses a session per link.
SESSIONS_PER_CONNECTION_MAX = 5000
LINKS_PER_SESSION_MAX = 256
# Two for each of its sessions; each link costs some 4 KiB.
LINKS_PER_CONNECTION_MAX = 10_000
# As Azure; enforced at twice this, because the Python SDK's heartbeat may be late.
IDLE_TIMEOUT_MS = 240_000
# Frames that a peer may send before it has to wait for a window update.
SESSION_WINDOW_FRAMES = 5000
# Work that one connection does before others have their go: a delivery, or, for more of
# it, anything else that a client says. Some 10 ms.
READ_WORK_MAX = 1000
# After a read of so many bytes, turns and other connections come before the next one.
# The event loop reads 256,000 bytes at a time, and up to 32 times in a row.
READ_GO_BYTES = 100_000
READ_WORK_OF_EVENT = 20
# The attach of a link takes 0.15 ms. A round trip of another client waits for some
# twenty goes of a connection that attaches many, which are 3 ms each.
READ_WORK_OF_ATTACH = 50
# A client that attaches more links than one go takes waits so long before its next go:
# 1,000 links take it 0.2 s longer, and others have half of the time meanwhile. So does
# one that holds more of unfinished messages, after each read: 250 KB, so that large
# messages come at 60 MB a second at least.
READ_PAUSE_SECONDS = 0.004
PACED_ASSEMBLY_BYTES = 8 * 1024 * 1024
# Links of a connection that is gone which are closed before others have their go, and
# up to a session more; some 3 ms.
LINKS_CLOSED_PER_GO_MAX = 200
# Messages that are read and handed on together, after the first of them.
RUN_MESSAGES_MAX = 63
# Dispositions that are read together, where each goes on where the last one ended.
RUN_FRAMES_MAX = 64
# Frames in a row that say nothing to the server, such as heartbeats or the beginnings
# of large messages, before it is asked whether others should have their go.
QUIET_FRAMES_MAX = 50
# A peer that does not read: this much is buffered, then nothing is read from it.
WRITE_BUFFER_BYTES_MAX = 1024 * 1024
# ... and after this long without progress it is closed.
WRITE_STALL_SECONDS_MAX = 30

# -- memory that clients make the server hold --------------------------------------

# Of one connection: the largest message, sent in part or not read, and some more.
MEMORY_PER_CONNECTION_BYTES_MAX = 128 * 1024 * 1024
# Of one remote address: two of the largest messages at once. Each may be in memory
# twice while its parts are joined.
MEMORY_PER_ADDRESS_BYTES_MAX = 256 * 1024 * 1024
# Of all: two such addresses, in a process that has 60 MiB without clients.
MEMORY_BYTES_MAX = 512 * 1024 * 1024
# Changes that are not worth a look at the sums; 5,000 connections are 320 MiB off at
# most, and usual ones hold less than this altogether.
MEMORY_STEP_BYTES = 64 * 1024
# Memory of connections that are gone, before the C library is told to return it to the
# system, which takes some milliseconds.
MEMORY_TRIM_BYTES = 16 * 1024 * 1024
# What a session, a link and a delivery that is not settled take. With CPython 3.11 a
# session has 1.4 KiB, and a link with the node behind it 2.1 KiB and what its attach
# says, which is counted apart; the rest is for what the host and the store keep of it.
SESSION_BYTES = 2 * 1024
LINK_BYTES = 4 * 1024
UNSETTLED_BYTES = 512

# -- admission: sockets that wait to come in ---------------------------------------

# While claimed clients are at work, one connection may come in every so often. One
# costs about 0.3 ms of a core, with TLS about 0.8 ms: a tenth of the time is theirs.
NEWCOMER_MS = 3
NEWCOMER_TLS_MS = 8
# Claimed clients are at work if one of them has sent something this recently.
BUSY_MS = 50
# Sockets that wait to come in, for each port. Twice what may be in: a fleet that comes
# back waits here, where its members take turns with others.
NEWCOMERS_WAITING_MAX = 10_000
# The pause after the system has refused a socket: it has no file descriptors left.
ACCEPT_PAUSE_SECONDS = 0.5
# Sockets that are taken over from the system in one turn of the loop; 0.2 ms.
ACCEPTS_PER_TURN_MAX = 16
# Sockets closed in one turn whose peers gave up while they waited; 0.5 ms.
ADMISSION_LOOKS_PER_TURN_MAX = 64
# Connections that the kernel keeps until they are accepted; its own default.
LISTEN_BACKLOG_SOCKETS_MAX = 4096

# -- server start and stop ---------------------------------------------------------

# How long clients that read slowly keep a stopping server, and how often it looks.
SERVER_CLOSE_SECONDS_MAX = 2.0
SERVER_CLOSE_POLL_SECONDS = 0.01
# What a server takes to stop at most, on a disk that hangs. Below what its supervisor
# allows, so that the log says which disk it was.
SERVER_STOP_SECONDS_MAX = 7.0
# Clients on several systems refuse server certificates that live longer.
CERTIFICATE_DAYS = 730
# Long enough that clients need not trust a new authority while a project lives.
CA_CERTIFICATE_DAYS = 3650
# A certificate with less left is replaced when the server starts.
CERTIFICATE_RENEW_DAYS = 30
# New objects before a collection. The hot path makes many that die young by themselves;
# the default of 700 would look at the rest again and again.
SERVER_GC_OBJECTS = 50_000

# -- rehearsed faults --------------------------------------------------------------

# How long a fault stays on unless told otherwise, and at most: it must end by itself.
FAULT_SECONDS_DEFAULT = 600
FAULT_SECONDS_MAX = 86_400
# A fault that stops the process lets its request be answered first.
FAULT_PAUSE_SECONDS = 0.1
# How often the log says that a fault is still on.
FAULT_REMINDER_SECONDS = 60

# -- supervisor --------------------------------------------------------------------

# How often the event loop of the server shows that it moves.
HEARTBEAT_SECONDS = 0.5
# A loop that has not moved for this long is taken for stalled. No honest turn comes
# near it, and clients wait at least as long for an answer.
HEARTBEAT_SILENCE_SECONDS_MAX = 5.0
# How often the supervisor looks. A look that comes later counts as one that did not:
# then the supervisor itself stood still, with the machine or its process group.
SUPERVISOR_LOOK_SECONDS = 0.5
# So many restarts in this time; then something is wrong that they do not cure.
SUPERVISOR_RESTARTS_MAX = 5
SUPERVISOR_RESTART_WINDOW_SECONDS = 60.0
# What a server may take to stop before it is killed. Containers allow 10 s by default.
SUPERVISOR_STOP_SECONDS_MAX = 8.0
# What a server without its supervisor may take to stop by itself.
ORPHAN_STOP_SECONDS_MAX = 8.0
# Sockets in one message between them; Linux passes 253 at most.
SUPERVISOR_SOCKETS_PER_MESSAGE_MAX = 200
# The log as it was before a failure: the last records, and the room for them, which
# is 800 bytes each. A longer record, such as a traceback, may have this much.
LOG_RING_RECORDS_MAX = 10_000
LOG_RING_BYTES = 8 * 1024 * 1024
LOG_RECORD_BYTES_MAX = 16 * 1024
# How often metrics are written to where the supervisor finds them, and their room.
VITALS_SECONDS = 1.0
VITALS_BYTES_MAX = 512 * 1024
# Entities in them, of all namespaces: 500 take 2 ms of each second.
VITALS_ENTITIES_MAX = 500
# How often a container's counters are compared with its rows, and how many of them.
# It costs about 1 ms.
AUDIT_SECONDS = 1.0
AUDIT_ROWS_MAX = 1000
# Diagnostics bundles that are kept; one has some megabytes at most.
DIAGNOSTICS_KEPT_MAX = 10
# What the stacks of a failed server may take: until the first is there, and after the
# last. A restart waits for them, and a bundle is to be there within a second.
STACKS_SECONDS_MAX = 0.5
STACKS_QUIET_SECONDS = 0.1
STACKS_BYTES_MAX = 256 * 1024
# What the check of all stores may take after a restart, and the problems it lists. It
# reads the files once, at the lowest priority; meanwhile their logs cannot be cut.
STORE_CHECK_SECONDS_MAX = 60.0
STORE_PROBLEMS_MAX = 20
# What a supervisor that gives up waits for its last bundle.
DIAGNOSTICS_SECONDS_MAX = 1.0

# -- links -------------------------------------------------------------------------

# As the real service grants; refilled at half.
CREDIT_WINDOW = 1000
# Deliveries that one receiver may hold without settling.
UNSETTLED_PER_LINK_MAX = 2048
# Ids of deliveries that a link remembers although they are settled: they are forgotten
# together, which costs less than one by one.
SETTLED_IDS_PER_LINK_MAX = 1024
# A waiting "next session" without its own timeout.
SESSION_WAIT_MS = 60_000

# -- messages ----------------------------------------------------------------------

MESSAGE_BYTES_MAX = 256 * 1024
# Entities may ask for up to this (Premium's large messages).
MESSAGE_BYTES_CEILING = 100 * 1024 * 1024
PROPERTIES_BYTES_MAX = 64 * 1024
PROPERTY_BYTES_MAX = 32 * 1024
MESSAGE_ID_CHARS_MAX = 128
SESSION_ID_CHARS_MAX = 128
PARTITION_KEY_CHARS_MAX = 128
# Messages in one batch transfer; a batch is at most a message in bytes anyway.
BATCH_MESSAGES_MAX = 4500
# The end of year 9999. Scheduled times end before it, and clients send it (some add a
# millisecond) for "any time at all".
TIME_MS_MAX = 253_402_300_799_999
# What the real service allows; a longer text of an error is cut.
DEAD_LETTER_DESCRIPTION_CHARS_MAX = 4096

# -- entities ----------------------------------------------------------------------

ENTITY_PATH_CHARS_MAX = 260
SUBSCRIPTION_NAME_CHARS_MAX = 50
RULE_NAME_CHARS_MAX = 50
# The namespace is the first label of a host name; Azure stops at 50.
NAMESPACE_NAME_CHARS_MAX = 50
# The real service's ranges, in the order of its documentation.
LOCK_MS_MIN = 5_000
LOCK_MS_MAX = 300_000
DUPLICATE_WINDOW_MS_MIN = 20_000
DUPLICATE_WINDOW_MS_MAX = 7 * 86_400_000
TIME_TO_LIVE_MS_MIN = 1_000
AUTO_DELETE_MS_MIN = 300_000
DELIVERY_COUNT_MAX = 2_147_483_647
USER_METADATA_CHARS_MAX = 1024
# What an entity may ask for when it wants more than the default message size.
MESSAGE_KILOBYTES_DEFAULT = 256
MESSAGE_KILOBYTES_MIN = 1024
MESSAGE_KILOBYTES_MAX = 102_400
# Azure ends at 80 GiB. One database file of 1 TiB is as far as ours was thought.
ENTITY_MEGABYTES_MAX = 1024 * 1024
# A throttle above this is no throttle.
MESSAGE_RATE_MAX = 10_000_000
FORWARD_HOPS_MAX = 4
# Copies of one message that are forwarded: two for each subscription of a topic, and
# some. Four hops between topics with ten subscriptions each would otherwise make a
# hundred thousand of one, in one turn.
FORWARD_COPIES_MAX = 5_000
# A namespace file with the limits of entities above stays far below this.
CONFIG_BYTES_MAX = 16 * 1024 * 1024
# The longest text of a duration is the maximum of .NET; the rest is room for zeros.
DURATION_TEXT_CHARS_MAX = 64

# -- filters -----------------------------------------------------------------------

FILTERS_PER_TOPIC_MAX = 2000
FILTER_CHARS_MAX = 1024
FILTER_EXPRESSIONS_MAX = 32
# NOT and minus signs in a row, calls inside calls. People write two or three; each
# level costs a Python frame when the filter runs.
FILTER_DEPTH_MAX = 32
# Work of all rules of a subscription on one message. A step is a node of an expression,
# a character that LIKE looks at one by one, or 64 characters that it compares at once.
# The largest honest filter (32 LIKEs over 4 KiB of text) needs half of this at most,
# and all of it is some tens of milliseconds.
FILTER_STEPS_MAX = 256 * 1024
# What any rule takes, however simple it is: some 2 microseconds.
FILTER_STEPS_OF_RULE = 16
# `str.find` compares this many characters in about the time of one Python step.
FILTER_CHARS_PER_STEP = 64

# -- management requests -----------------------------------------------------------

# Requests are small; a scheduled message travels inside one.
REQUEST_BYTES_MAX = 1024 * 1024 + 64 * 1024
PEEK_MESSAGES_MAX = 250
# A peek stops here, after one message at least; clients go on from the last number.
PEEK_BYTES_MAX = 1024 * 1024
# Deferred messages are answered all together: the largest message and some more.
DEFERRED_BYTES_MAX = 128 * 1024 * 1024
# What one look into a container reads while a request removes messages.
SWEEP_BYTES_MAX = 4 * 1024 * 1024
# Session names in one reply; the Python SDK asks for 100.
SESSIONS_PER_REPLY_MAX = 1000
# Replies that wait for a client to give credit; as many requests have credit.
REPLIES_WAITING_MAX = 100
# Replies that a connection may have unread before its requests are told to wait.
REPLY_BYTES_MAX = 16 * 1024 * 1024

# -- transactions ------------------------------------------------------------------

TRANSACTION_MESSAGES_MAX = 100
TRANSACTION_SECONDS_MAX = 120
# Transactions that one connection may have open at a time.
TRANSACTIONS_OPEN_MAX = 100
# What they may hold in memory together: the largest message and some more.
TRANSACTION_BYTES_MAX = 128 * 1024 * 1024

# -- administration ----------------------------------------------------------------

# A description with twelve authorization rules or a rule with many properties stays
# far below this.
ADMIN_BODY_BYTES_MAX = 256 * 1024
# Entries of one page; as the real service, which clients follow with next links.
ADMIN_PAGE_ENTRIES_MAX = 100

# -- HTTP --------------------------------------------------------------------------

# A body may take this long ...
HTTP_BODY_SECONDS_MAX = 30
# ... and a second more for each of these. The largest message, 100 MiB, may then take
# two hours, and a connection cannot be held for less than a modem sends.
HTTP_BODY_BYTES_PER_SECOND_MIN = 16 * 1024
# How long the first look for a message may take after a receive's time is over: a slow
# commit, not a hung one.
REST_LOOK_SECONDS_MAX = 10.0
# As documented for a receive, which is also what it waits without a `timeout`.
REST_WAIT_SECONDS_MAX = 60
# What `Retry-After` says when the server is busy; the SDKs wait as long.
RETRY_AFTER_SECONDS = 10
# The longest that a health probe may take. Orchestrators ask with timeouts of some
# seconds.
HEALTH_SECONDS_MAX = 2.0
# How long the answer of a probe serves: many that ask cost one commit a second.
HEALTH_CACHED_SECONDS = 1.0
# How long the answer to a scrape serves: that of 2,500 entities takes 40 ms.
METRICS_CACHED_SECONDS = 1.0
# The longest that a scrape waits for the counts of entities; then it shows the last
# ones. Prometheus waits 10 seconds for the answer.
METRICS_SECONDS_MAX = 2.0
# How long a probe locks its message; it is completed in the same turn.
HEALTH_LOCK_MS = 60_000
# How long a server that stops waits for requests in hand, and then for clients that
# read slowly: well below the ten seconds that orchestrators give.
HTTP_CLOSE_SECONDS_MAX = 1.0
# How often it looks whether they are gone meanwhile.
HTTP_CLOSE_LOOK_SECONDS = 0.01
# How much of a value that cannot be read an error repeats.
SHOWN_VALUE_CHARS_MAX = 64
# How much of an error's text goes into a frame, which must not be filled by a long name
# that the text repeats.
ERROR_TEXT_CHARS_MAX = 1024

# -- shards ------------------------------------------------------------------------

# Parcels that one turn reads from an outbox, and their bytes: about what a turn of the
# other shard applies.
OUTBOX_ROWS = 500
OUTBOX_BYTES = 1024 * 1024
# A shard whose turn takes longer is sick: what waits for it is refused, and sends are
# kept by another shard. Above it is no load, which is throttled, but a disk that hangs.
SICK_TURN_SECONDS = 3.0
# So often a turn in hand is looked at meanwhile.
SICK_TURN_LOOKS = 6
# How long a shard that was sick may take to write and sync a row before it is well.
SICK_PROOF_SECONDS = 1.0
# What one shard keeps for a sick one. Then senders are refused, and a pair diverts.
SPOOL_BYTES_MAX = 1024 * 1024 * 1024
# When so few are left, new sends to their entities wait for the last of them: a tenth
# of a second of them.
SPOOL_TAIL_ROWS = 500
# Fragments of a partitioned entity. With a number above 48 bits, sequence numbers stay
# below 2**53: the JavaScript client rounds those from there to 2**53 + 2**32.
FRAGMENTS_MAX = 32
# How long a start waits until shards know of each other's entities.
SHARDS_SETTLE_SECONDS_MAX = 5

# -- turns -------------------------------------------------------------------------

# Bytes of commands that may wait for a turn before reading stops. More would not be
# faster, and a single send beside a flood would wait for a longer turn.
PENDING_BYTES_MAX = 4 * 1024 * 1024
# Work of a turn for commands, as much again for what time brings, and as much again for
# consumers: rows that are written in one go, 4 to 8 microseconds each with the commit,
# or what takes the time of so many. Each of the three is about 10 ms. What is left over
# goes on in the next turn.
TURN_WORK_MAX = 1500
# After so much work, and so long without any, the log goes into the database file, so
# that no commit has to do it. The pause is longer than those of a client that sends one
# message after the other.
CHECKPOINT_WORK_MIN = 1000
CHECKPOINT_IDLE_SECONDS = 0.1
# Where so much waits, a turn begins without another look at what clients have sent.
TURN_BYTES_ENOUGH = 1024 * 1024
# A client whose last command took so much lets others go on before its next one: as
# long as that turn took, and this at most.
COSTLY_WORK = TURN_WORK_MAX // 2
COSTLY_PAUSE_SECONDS_MAX = 0.05
FILTER_STEPS_PER_ROW = 64
# A message that is written alone: a statement of its own, and for the first one in a
# container also a page that the commit writes.
ROWS_OF_PUT = 2
ROWS_OF_FIRST_PUT = 5
# A copy that is written together with others for the same subscription.
ROWS_OF_COPY = 1
# A message that a topic has kept whole is searched for, read and removed again.
ROWS_OF_POSTPONED = 3
# Those of a topic are copied in groups: with one statement for all copies that a
# subscription gets.
FAN_OUT_MESSAGES_MAX = 100
FAN_OUT_BYTES_MAX = 4 * 1024 * 1024
# So many copies of a message cost no more than to keep it whole for a later turn. A
# topic with no more subscriptions and rules goes on for this much work: 20 ms, in which
# 500 deliveries, which are one command, are copied to three subscriptions.
COPIES_AT_ONCE = 4
SMALL_TOPIC_WORK_MAX = 2 * TURN_WORK_MAX
# Ids for messages that come without, which are made at a time.
RANDOM_IDS = 64
# Deliveries of a link that are one command, when they are sent and when they are
# settled: a turn ends between commands.
SEND_DELIVERIES_MAX = 500
COMPLETED_DELIVERIES_MAX = 500
# ... with another outcome than accepted. Each of them is applied alone, in the time of
# some rows.
SETTLED_DELIVERIES_MAX = 100
ROWS_OF_OUTCOME = 8
# Messages that a turn takes for the only consumer of a container, and for each of many:
# a share small enough that all get some.
SHARE_ALONE_MESSAGES = 1000
SHARE_MESSAGES = 100
# How often a receiver with too many unsettled deliveries looks for ended locks.
LOST_LOCKS_LOOK_MS = 1_000
# Rows that a purge forgets at once, and that go with an entity when it is deleted; more
# go in later turns.
PURGE_STEP = 500
# Items of each kind that time works off in one turn, so that other work gets its turn.
SWEEP_MAX = 500
# So many are read from the store at once: messages may be large.
SWEEP_STEP = 50
# Locks that a turn ends one by one, because all together failed: each is a part.
END_ALONE_MAX = 100
# How often idle entities and old duplicate history are looked for.
IDLE_CHECK_MS = 10_000
# Between two looks at the time. Overdue work that cannot be done yet must not spin the
# loop; and clocks may be set, so the timer is renewed within a minute.
TICK_SECONDS_MIN = 0.01
TICK_SECONDS_MAX = 60.0
# The same where nodes share a namespace: locks of a node that has died are ended by the
# others, who do not know when that is.
SHARED_TICK_SECONDS = 2.0
# A change of the wall clock that is a step: more than a busy machine takes between its
# looks at two clocks, less than a lock or token that is judged by the wrong time.
CLOCK_STEP_MS = 1_000
# How often the time is kept in the store, beside the start and after steps. A clock
# that is set back without a server makes locks and windows last longer by this at most.
CLOCK_KEEP_MS = 3_600_000
# How often a stopped store is asked whether it works again.
STORE_RECOVERY_SECONDS = 1.0
# How long a message that a topic has set aside is locked.
TOPIC_LOCK_MS = 60_000
# Messages that one turn takes from the store for one connection, by their average size.
STAGE_BYTES_MAX = 16 * 1024 * 1024

# -- throttling --------------------------------------------------------------------

# How often the load is measured. Four looks a second cost 0.1 ms together.
LOAD_LOOK_SECONDS = 0.25
# First level of the commit latency. A disk takes 1 to 20 ms; one that takes this long
# answers four times a second, whatever clients do.
THROTTLE_COMMIT_SECONDS = 0.25
# First level of the bytes that wait for a turn. Reading stops at a quarter of this, so
# that only many connections together come so far; a turn writes some 1.5 MiB.
THROTTLE_PENDING_BYTES = 16 * 1024 * 1024
# First level of the lag of the event loop. With 50 clients that send all they can, a
# round of the loop takes that long; the supervisor ends a loop at ten times this.
THROTTLE_LAG_SECONDS = 0.5
# The second level, as a multiple of the first: far enough that denying those who send
# most comes first, and with commits below what is sick.
THROTTLE_SECOND_LEVEL = 4
# Memory that a process may have, as a part of that of its container or machine, and the
# first level as a part of it. The rest is for the system and for its cache of files.
THROTTLE_MEMORY_PART = 0.8
THROTTLE_MEMORY_FIRST = 0.9
# A level is left below this part of its threshold, and after this long.
THROTTLE_RELEASE = 0.7
THROTTLE_HOLD_MS = 1_000
# What a commit counts beside those before it: one slow checkpoint throttles nothing.
THROTTLE_COMMIT_WEIGHT = 0.25
# What a look counts beside those before it, and the most that one look may say, as a
# multiple of the second level: a process that was stopped once reaches the first only.
THROTTLE_SAMPLE_WEIGHT = 0.5
THROTTLE_SAMPLE_MAX = 1.5
# A latency without further commits is half as much after this long.
THROTTLE_FORGET_SECONDS = 2.0
# The load of an entity counts half after this long. Denied clients wait twice that.
SHARE_HALF_LIFE_SECONDS = 5.0
# What a delivery costs beside its bytes: a small message takes the time of 1 KiB.
SHARE_DELIVERY_BYTES = 1024
# Recent load up to which an entity is never above its share: some 50 messages a second.
SHARE_BYTES_MIN = 512 * 1024

# -- the store ---------------------------------------------------------------------

# Twice as fast for messages of 1 KiB as the default of 4,096: fewer page splits.
SQLITE_PAGE_BYTES = 8192
# The write-ahead log goes into the database file after this many pages (32 MiB). More
# saves nothing that can be measured, and the commit that does it waits longer.
SQLITE_CHECKPOINT_PAGES = 4000
# The page cache is the store's only memory that depends on the depth of a queue.
SQLITE_CACHE_KIB = 32_000
# Steps of a statement between two reports that it moves: some milliseconds.
SQLITE_PROGRESS_STEPS = 10_000
# A backup program may hold the file for a moment.
SQLITE_BUSY_SECONDS = 1.0
# The reserve of a store on disk: this much, and at most this part of the disk. It holds
# a log of 32 MiB, and what the rows of locks need while a full queue is emptied.
RESERVE_BYTES_MAX = 128 * 1024 * 1024
RESERVE_PART_OF_DISK = 20
# Shards of a namespace: the nonce of a lock has 6 bits for the number of its shard.
SHARDS_MAX = 64
# What `recover` writes to prove that there is space again.
STORE_PROBE_BYTES = 64 * 1024
# How far ahead of the clock the bound of what receives have seen is kept: it is written
# once in that time. After a restart, messages that expire before it are looked at.
STORE_SEEN_AHEAD_MS = 1000
# Messages in a row that are worth three statements of their own when they settle.
STORE_RUN_MESSAGES_MIN = 4
# Messages that arrive together are kept in one row of SQLite, a pack. Fewer are not
# worth it: a receiver with little credit makes rows of them again. More save nothing,
# and those of more bytes would cost as much as they save when a pack is divided.
PACK_MESSAGES_MIN = 8
PACK_MESSAGES_MAX = 32
PACK_BYTES_MAX = 64 * 1024
# A larger message is never kept with others.
PACKED_MESSAGE_BYTES_MAX = PACK_BYTES_MAX // PACK_MESSAGES_MIN
# A receiver that takes at least this part of a pack divides it; for less than that, its
# messages get rows of their own.
PACK_PART_TO_DIVIDE = 4

# How long a connection to PostgreSQL may take when a server starts or a store recovers.
PG_CONNECT_SECONDS = 5.0
# A turn waits so long for a database that is away, and sends with it. As long as a turn
# may take (`SICK_TURN_SECONDS`): then they are refused, and a pair takes over.
PG_AWAY_SECONDS = 3.0
# Between two tries to connect: a database that restarts refuses at once.
PG_RETRY_SECONDS = 0.1
# A node that holds a shard and does not go on loses its turn after this time; far above
# a turn, below what clients wait for.
PG_IDLE_TURN_SECONDS = 1.5
# How long a turn waits for those of other nodes before it looks for one that hangs.
PG_LOCK_SECONDS = 2.0
# Unanswered packets break a connection after this time.
PG_SILENT_SECONDS = 5.0
# Between two probes on a connection that says nothing. The system's 75 seconds between
# the first and the second would be what a node waits for a machine that is gone.
PG_PROBE_SECONDS = 1.0
# How long a standby may take to confirm the first write.
PG_STANDBY_SECONDS = 5.0
# Clocks of a node and its database that are further apart are a mistake of the set-up:
# the tokens of clients end by the one, messages by the other.
PG_CLOCK_APART_SECONDS = 60.0
# Turns after one that the database has refused: the command that is the reason may come
# again, and fails alone then.
PG_CAREFUL_TURNS = 100
# Messages that a look at a queue reads at once, for a person.
PG_LOOK_ROWS_MAX = 64
# After so many turns the counters are written into their tables. A node that starts
# reads at most so many rows of the log.
PG_FOLD_TURNS = 256
# Between two looks at the log for news of other nodes: what a lost hint costs.
PG_POLL_SECONDS = 0.25
# Hints are collected for so long. Each takes a lock of the whole server.
PG_HINT_SECONDS = 0.005
# How often a node says that it is there, and how long it counts as there.
PG_BEAT_SECONDS = 2.0
PG_NODE_SEEN_SECONDS = 10.0
# How long turns stay in the log, for a node that looks for its last one.
PG_LOG_KEPT_MS = 120_000

# Rows between two reports of a copy from a folder into a database.
COPY_REPORT_ROWS = 1000

# -- the ledger --------------------------------------------------------------------

# Rows of a ledger are for a minute.
LEDGER_MINUTE_MS = 60_000
# The folders of a ledger are for a day.
LEDGER_DAY_MS = 24 * 60 * LEDGER_MINUTE_MS
# A message is billed once for each 64 KB that it has begun, as the service documents.
LEDGER_UNIT_BYTES = 64 * 1024
# Distinct rows of one minute, far above what a namespace of 10,000 entities makes: a
# client that names entities at random must not fill memory. 40 MB at most.
LEDGER_ROWS_PER_MINUTE_MAX = 100_000
# Events of pairs in one minute; each entity has a few in an outage.
LEDGER_EVENTS_PER_MINUTE_MAX = 10_000
# Minutes that wait for a disk that hangs, before they are dropped.
LEDGER_MINUTES_WAITING_MAX = 10
# What the last flush may take when a server or a factory stops, on a disk that is slow
# because it has too much to do.
LEDGER_CLOSE_SECONDS_MAX = 10.0
# Days are kept so long: a year and a month, to compare a month with the year before.
LEDGER_DAYS_MAX = 400
# Rows in memory while a day is compacted, and so in each group of its file.
LEDGER_COMPACT_ROWS = 200_000
# A child process that compacts days is ended then: minutes wait for it meanwhile, and
# may do so for LEDGER_MINUTES_WAITING_MAX. A day of 1,440 files takes some seconds.
LEDGER_COMPACT_SECONDS_MAX = 300
# Processes of one name that may write into one folder at a time.
LEDGER_WRITERS_MAX = 64
# A dead-letter queue of a subscription with the longest names, and some: longer texts
# are no names. Rows of a minute would need more memory with them.
LEDGER_NAME_CHARS_MAX = 400
# The name of a writer is part of names of files.
LEDGER_WRITER_CHARS_MAX = 80

# -- the client --------------------------------------------------------------------

# What a client asks a server to keep: a frame within this time. The JavaScript SDK's
# figure; a server that is silent for twice as long is gone.
CLIENT_IDLE_MS = 60_000
# A server that missed a deadline and said nothing at all for this long is taken for
# gone, and its connection is replaced. Shorter would punish one slow sync of a disk.
CLIENT_SILENCE_SECONDS = 2.0
# A name with several addresses: what each but the last may take of the time.
CLIENT_ADDRESS_SECONDS_MAX = 3.0
# What a call may take where the caller says nothing.
CLIENT_TIMEOUT_SECONDS = 30.0
# Deadlines of sends on one link that pass one shortly after the other are seen to
# together: one of them may be late by this much.
CLIENT_LOOK_SECONDS_MIN = 0.01
# So much is written at once, so that the server works while more messages are made;
# less waits until the loop comes round.
CLIENT_WRITE_BYTES = 32 * 1024
# A drain is answered at once by a server that lives.
CLIENT_DRAIN_SECONDS = 5.0
# Lifetime of tokens that are made from a key, as the SDKs do.
CLIENT_TOKEN_SECONDS = 3600
# A token that could not be renewed is tried again, but never more often than this.
CLIENT_RENEW_SECONDS_MIN = 5.0
# Reply of a proxy before the tunnel stands.
PROXY_REPLY_BYTES_MAX = 16 * 1024
# Batches stay below this where an entity takes larger messages, as in the SDKs.
CLIENT_BATCH_BYTES_MAX = 1024 * 1024
# Replies that a server may send before the client gives more credit.
CLIENT_REPLIES_MAX = 100
# How often a waiting caller looks whether the thread is still there.
CLIENT_THREAD_LOOK_SECONDS = 1.0
# What the client's thread may take to cancel its tasks, and then to end.
CLIENT_THREAD_STOP_SECONDS = 5.0

# -- pairing -----------------------------------------------------------------------

# The description of a message that the syphon dead-letters is cut here: a settlement
# travels in one frame.
SYPHON_DESCRIPTION_CHARS_MAX = 1024
# The ranges of the original library.
FAILOVER_INTERVAL_MS_MAX = 60 * 60_000
PING_INTERVAL_MS_MIN = 1_000
PING_INTERVAL_MS_MAX = 30 * 60_000
# Its defaults: for both intervals, and for the number of backlog queues.
PAIR_INTERVAL_MS_DEFAULT = 60_000
BACKLOG_QUEUES_DEFAULT = 10
# The path of a backlog queue must be valid up to this index, far beyond any count.
BACKLOG_INDEX_MAX = 999_999
# An attempt that a silent peer would keep for ever ends here and counts as a failure.
ATTEMPT_MS_MAX = 30_000
# Between attempts on an entity that is suspect: soon enough that a blip costs little,
# seldom enough that a thousand senders do not hammer a server that starts.
RETRY_PAUSE_MS_MIN = 250
RETRY_PAUSE_MS_MAX = 5_000
# Pauses of a sender without a pair: the factor and the longest one that the official
# client takes where the application gives none.
RETRY_FACTOR_SECONDS = 0.8
RETRY_SECONDS_MAX = 120.0
# Doublings of a pause: beyond this every pause is at its longest anyway, and the number
# stays small however often something has failed.
RETRY_DOUBLINGS_MAX = 16
# What the service asks for when it says that it is busy.
SERVER_BUSY_PAUSE_MS = 10_000
# Sends that wait for a suspect entity, in one factory.
HELD_SENDS_MAX = 10_000
HELD_BYTES_MAX = 64 * 1024 * 1024
# A backlog queue that failed: the pause before it is probed, doubled up to the second.
QUEUE_PAUSE_MS_MIN = 5_000
QUEUE_PAUSE_MS_MAX = 5 * 60_000
# While a call waits for any of them: an outage of the secondary is outlasted by this.
QUEUE_AWAITED_PAUSE_MS = 1_000
# A destination that does not take what the syphon brings.
DESTINATION_PAUSE_MS_MIN = 5_000
DESTINATION_PAUSE_MS_MAX = 60_000
# Messages of one backlog queue that are left locked for such destinations. A link holds
# 2,048 unsettled deliveries at most, so that others still come up behind them.
PARKED_MESSAGES_MAX = 2_000
# A destination that does not take what comes out of a local outbox.
OUTBOX_PAUSE_MS_MIN = 1_000
OUTBOX_PAUSE_MS_MAX = 5_000
# What is left locked there by a process that was killed returns after this time; long
# enough for an application whose event loop is blocked for some seconds.
OUTBOX_LOCK_MS = 10_000
# The queue in it is as large as a queue can be: the disk is the limit.
OUTBOX_QUEUE_MEGABYTES = ENTITY_MEGABYTES_MAX
# How often its messages are counted while it has some.
OUTBOX_LOOK_SECONDS = 1.0
# What a send out of it may take, in attempts: one on the primary, and one on a backlog
# queue that does not answer either.
OUTBOX_ATTEMPTS_MAX = 2
# How much later a lock may really end than was reckoned when the message came in.
LOCK_MARGIN_MS = 1_000
# The longest pause before a ping after relapses, unless the ping interval is longer: a
# sick entity costs one slow send in that time, and one that is well waits no longer.
RELAPSE_PAUSE_MS_MAX = 5 * 60_000
# When a send may count as failed because it is slow: above what a healthy service takes
# for a full batch, and below the time after which an attempt ends anyway.
SLOW_SEND_MS_MIN = 100
SLOW_SEND_MS_MAX = 60_000
# A caller's timeout that leaves an attempt no more than this says nothing about the
# entity: the attempt does not count as a failure.
COUNTED_ATTEMPT_MS_MIN = 1_000
# What is kept of a caller's timeout for the backlog, at least, where one failure would
# fail over, and of what the backlog has for the outbox; at most half of the time left.
BACKLOG_RESERVE_MS_MIN = 1_000
# A ping that a service stores all the same expires this soon.
PING_TTL_MS = 1_000
# Causes of an error that are looked at. Long chains are a defect, circular ones exist.
ERROR_CAUSES_MAX = 8
# Paths of entities whose key is kept: the same few come again and again.
ENTITY_KEYS_KEPT_MAX = 4096
# A backlog queue that has to be made: the largest that is not partitioned on the real
# service, and a lock that outlasts a slow batch.
BACKLOG_QUEUE_MEGABYTES = 5120
BACKLOG_LOCK_SECONDS = 60
# Where backlog queues cannot be listed they are looked for by their index, until this
# many in a row are missing. Each costs a request that is refused, every 15 minutes.
BACKLOG_GAP_MAX = 100
# Backlog queues that are linked to before all others, so that a wrong key is shown
# twice and not ten times: a server may bar clients that fail often.
BACKLOG_LINKS_FIRST = 2

# Events that an iterator keeps until they are read.
EVENTS_KEPT_MAX = 1_000
# Attempts to make a backlog queue, and the pause between them.
QUEUE_TRIES_MAX = 3
QUEUE_TRY_PAUSE_SECONDS = 1.0
# How often a pair that has diverted looks whether the backlog is drained. Two
# looks without progress are a warning; each costs one operation for each queue.
BACKLOG_LOOK_SECONDS = 10 * 60.0

# -- the pumps of the syphon -------------------------------------------------------

# What one receive waits while a backlog queue is empty: ten idle queues cost forty
# receives an hour.
SYPHON_POLL_SECONDS = 15 * 60.0
# A link that a service ends as idle was idle for longer than this: Azure ends links
# after ten minutes, and connections without links after one.
IDLE_LINK_MS_MIN = 60_000
# Messages of one receive. Two of these may be in hand, and with those that are parked
# that is what a link may hold.
SYPHON_CHUNK_MESSAGES = 500
# What a pump has in hand, reckoned by the average size of what came so far.
SYPHON_HAND_BYTES_MAX = 32 * 1024 * 1024
# How much the sizes of one chunk count for the next, beside all before it.
SYPHON_SIZE_WEIGHT = 0.5
# Lock tokens of one request to a backlog queue; a request that fails is halved.
SYPHON_SETTLE_TOKENS_MAX = 500
# What a batch adds to each message (a section), and to all of them: an envelope that
# repeats id, session and partition key of the first one, of 128 characters each.
BATCH_SECTION_BYTES = 8
BATCH_ENVELOPE_BYTES = 2048
# Links to destinations that are kept open; a connection may have 5,000 sessions.
SYPHON_SENDERS_MAX = 1_000
# What a pump that stops waits for answers, before it gives up what is under way.
SYPHON_STOP_SECONDS = 2.0
# How often the secondary is asked for backlog queues; as often as one is polled.
SYPHON_LOOK_SECONDS = 15 * 60.0
# How often progress is told while there is some.
SYPHON_PROGRESS_SECONDS = 10.0
# A factory whose partner has ended is faulted after this.
PARTNER_GRACE_SECONDS = 5.0

# -- the syphon on Spark -----------------------------------------------------------

# How often a task looks for receipts that others wrote. A message comes again when its
# lock ends, at least five seconds after it was sent; this is well below.
JOURNAL_LOOK_SECONDS = 1.0
# Series that are packed into one file: tasks of ten seconds make a thousand in hours.
JOURNAL_PACK_FILES_MAX = 1_000
# How long the tokens of tasks last: a task may wait for an executor, and be repeated.
SYPHON_TOKEN_SECONDS = 4 * 3600
# While messages are left that are locked, the queues are looked at this often.
SYPHON_LEFT_SECONDS = 5.0
# What a receive of a task waits for the first message of a queue that has some, and
# for those after it. Whatever comes of the wait, the receive ends with a drain, which
# says for certain that nothing is ready; and a task slot does nothing meanwhile.
SYPHON_FIRST_SECONDS = 1.0
SYPHON_NEXT_SECONDS = 0.05
# A queue that a task found empty is tried again after this, while others have work.
SYPHON_EMPTY_SECONDS = 30.0
# What each look at a namespace may take before a syphon starts.
SYPHON_CHECK_SECONDS = 15.0
# Options of the job. A task has two chunks in hand, and a link 2,048 deliveries.
SYPHON_CHUNK_MESSAGES_MAX = 2_000
SYPHON_PARALLELISM_MAX = 10_000
# Tasks to plan for where Spark does not say how many run at once (Spark Connect).
SYPHON_PARALLELISM_UNKNOWN = 4
SYPHON_TASK_SECONDS = 10
# Tokens of tasks last four hours, so a task has to end long before.
SYPHON_TASK_SECONDS_MAX = 600
# Reports of runs that are older are removed.
SYPHON_RUNS_KEPT_DAYS = 7
# How often a task says how far it is.
SYPHON_REPORT_SECONDS = 1.0
# When a namespace cannot be reached: the pause, doubled up to the second.
SYPHON_PAUSE_MS_MIN = 500
SYPHON_PAUSE_MS_MAX = 15_000

# -- the Spark source and sink -----------------------------------------------------

# Rows that are Python objects at one time, in the sink.
SINK_PIECE_BYTES = 1024 * 1024
# One Arrow batch of the source, and about what a row takes beside its message.
SOURCE_BATCH_BYTES = 4 * 1024 * 1024
SOURCE_ROW_BYTES = 300
# Locks that one request settles; a refusal is looked for by halves.
SETTLE_TOKENS_MAX = 1_000
# Messages of a micro-batch, and of a task's part of it before they are written and
# settled: a link holds 2,048 unsettled deliveries at most.
BATCH_MESSAGES_DEFAULT = 10_000
CHUNK_MESSAGES_DEFAULT = 1_000
CHUNK_MESSAGES_MAX = 2_000
# More than a batch could ever hold: it only refuses a number that was mistyped.
BATCH_MESSAGES_MAX_OPTION = 1_000_000_000
# Tasks of one micro-batch or read. More links to one entity do not make it faster.
PARALLELISM_MAX = 1_000
# What a task of the source receives for, and what one of the sink waits for a namespace
# that is busy or away.
SOURCE_TASK_SECONDS = 10
SINK_TASK_SECONDS = 300
TASK_SECONDS_MAX = 86_400
# An idle source looks for a message this long at a time, so that it asks 12 times a
# minute and a query that is stopped is not kept.
SOURCE_IDLE_SECONDS = 5.0
# A session that has messages is given at once, so that this is waited in vain.
SOURCE_SESSION_SECONDS = 0.25
# Session names of one request; as the Python SDK asks.
SOURCE_SESSIONS_PAGE = 100
# How many times longer the next chunk may be than the one before, while the sizes of
# messages are being learnt.
SOURCE_CHUNK_GROWTH = 4
# The largest sequence number: a signed 64-bit integer.
SEQUENCE_NUMBER_MAX = (1 << 63) - 1
# Sessions of one micro-batch; each costs a link.
BATCH_SESSIONS_MAX = 10_000
# A stream that browses looks for new messages this often.
SOURCE_PEEK_SECONDS = 1.0
# How long a task that browses asks a namespace that is away, and how long the writer of
# a stream does when it is made: a restart must not end either.
BROWSE_AWAY_SECONDS = 60.0
STREAM_AWAY_SECONDS = 60.0
# Between attempts to reach a namespace that is away: doubled up to the second.
AWAY_PAUSE_MS_MIN = 500
AWAY_PAUSE_MS_MAX = 10_000
# Rows that are encoded before they are sent, in bytes: a few full batches.
SINK_BUFFER_BYTES = 2 * 1024 * 1024
# Bad rows that wait to be written, in bytes: a row group of reasonable size.
BAD_ROWS_BUFFER_BYTES = 4 * 1024 * 1024
# What `java -version` may take; a Java that is slower cannot run Spark either.
JAVA_SECONDS_MAX = 30

# -- the command line --------------------------------------------------------------

# The largest port number of TCP.
PORT_MAX = 65535
# A command that takes longer than this says what it is doing.
CLI_QUIET_SECONDS = 2.0
# One request to a server, and the token that it carries.
CLI_REQUEST_SECONDS_MAX = 30.0
CLI_TOKEN_SECONDS = 60
# A connection string from a file: longer than any, short for a file given by mistake.
CLI_SECRET_CHARS_MAX = 16 * 1024
# Retries of the official client in a command: a person waits for the answer.
CLI_RETRIES_MAX = 1
# Messages asked for at once when many are wanted.
CLI_RECEIVE_MESSAGES_MAX = 100
# What `message receive` and `purge` wait at most: a day, since more is a typing error.
CLI_WAIT_SECONDS_MAX = 86_400
# The longest time to live that a header holds: 32 bits of milliseconds, 49 days.
HEADER_TTL_MS_MAX = (1 << 32) - 1
# Decimals of an amount of money: the smallest prices of one operation have six.
PRICE_DECIMALS_MAX = 6
# What a forecast takes: a year of 365 days at most, more messages a second than any
# namespace takes, and more entities, senders or queues than one has.
FORECAST_MS_MAX = 365 * 86_400_000
FORECAST_RATE_MAX = 1_000_000_000
FORECAST_COUNT_MAX = 1_000_000
# Values of one option that are compared: a screen of lines.
FORECAST_COMPARED_MAX = 50
# The rates of a syphon are averages over this long.
CLI_RATE_SECONDS = 10.0
# What a command waits for the secondary, and for a link to an entity of the primary.
CLI_NAMESPACE_SECONDS = 15.0
# What it waits for a Spark master, which answers at once or not at all.
CLI_MASTER_SECONDS = 5
# Messages of one receive, and what it waits before a queue is taken to be empty.
CLI_CHUNK_MESSAGES = 500
CLI_EMPTY_SECONDS = 1.0
# Messages of each queue that `backlog list` looks at, and `backlog peek` shows.
CLI_LISTED_MESSAGES = 10_000
CLI_SHOWN_MESSAGES = 10
# How often `--watch` looks: often enough to see work move, seldom enough to read it.
CLI_WATCH_SECONDS = 2.0
# A backlog that `syphon --until-empty` drains inside its process, at 2,500 messages a
# second in less than a minute. Spark takes 10 to 40 seconds to start; for more it is
# worth that, since it uses all processors and has receipts if it is killed.
SYPHON_APPLICATION_MESSAGES_MAX = 100_000
# How often a running syphon is looked at, and how often a line is printed without a
# terminal; rates are over the third.
CLI_LOOK_SECONDS = 0.5
CLI_LINE_SECONDS = 5.0

# -- the drill: its size -----------------------------------------------------------

# Minutes in real life. A drill should not take long, so all of these are short.
DRILL_FAILOVER_SECONDS = 2.0
DRILL_PING_SECONDS = 1.0
DRILL_ATTEMPT_SECONDS = 1.5
DRILL_LOCK_SECONDS = 5.0
DRILL_BACKLOG_QUEUES = 4
# Traffic: seconds where the user gives none, and what may be asked for.
DRILL_SECONDS = 30.0
DRILL_SECONDS_MIN = 15.0
DRILL_SECONDS_MAX = 600.0
# Messages a second of all senders together, and the most that may be asked for.
DRILL_RATE = 300
DRILL_RATE_MAX = 1000
# Seeds that are chosen for a user stay short enough to type.
DRILL_SEED_MAX = 1_000_000
# Each sender is a process.
DRILL_SENDERS_MAX = 16
# So that each sender meets the outage with each entity.
DRILL_MESSAGES_PER_SENDER_MIN = 60
# Above the time of an attempt, so that a slow disk fails over, and above what counts as
# load (`SICK_TURN_SECONDS`): a busy primary never fails over. An answer may wait for
# two commits.
DRILL_SLOW_DISK_SECONDS = 4.0
# Longer than the supervisor waits: a restart ends a stall.
DRILL_STALL_SECONDS = 30.0
# So much of the usual outage where pings pause after relapses.
DRILL_RELAPSE_SHARE = 0.75
# How an application sends again what raised: the pause doubles up to the longest.
DRILL_AGAIN_SECONDS_MIN = 1.0
DRILL_AGAIN_SECONDS_MAX = 4.0
# Three failover intervals, so that every entity fails over.
DRILL_OUTAGE_SECONDS_MIN = 6.0
# Messages with a time to live outlive the drill, so none is lost by it.
DRILL_TTL_MS = 3_600_000
# Scheduled messages arrive while the traffic still flows.
DRILL_DELAY_MS_MAX = 2_000
# Bodies are small, so that the drill measures messages and not bytes.
DRILL_BODY_BYTES_MAX = 1500
# Clients and brokers read one clock, but on a busy machine not at the same moment.
DRILL_SLACK_MS = 50.0
# Namespaces that the user has may be on other machines, with clocks of their own.
DRILL_GIVEN_SLACK_MS = 2_000.0
# The duplicate window of the detecting queue; longer than a drill.
DRILL_DUPLICATE_WINDOW_MS = 600_000.0
# Receivers share the entities of the primary.
DRILL_RECEIVERS = 2
# Findings of one kind that a report names; the counts are exact.
DRILL_FINDINGS_MAX = 3

# -- the drill: its waits ----------------------------------------------------------

# How often the director reads the depth of the backlog, and paints.
DRILL_SAMPLE_SECONDS = 0.5
DRILL_PAINT_SECONDS = 0.25
# How often it looks whether the backlog is empty.
DRILL_EMPTY_SECONDS = 0.3
# Drains before a backlog that does not empty fails the drill.
DRILL_DRAINS_MAX = 3
# Processes that may die where the cast makes them die.
DRILL_DEATHS_MAX = 2
# All of these are long: a wait that ends is a failed drill.
DRILL_READY_SECONDS = 60.0
DRILL_SPARK_SECONDS = 120.0
DRILL_CHANGE_SECONDS = 30.0
DRILL_SEND_SECONDS = 60.0
DRILL_DRAIN_SECONDS = 180.0
DRILL_SETTLE_SECONDS = 60.0
# What a new connection may take before the namespace counts as out of contact.
DRILL_CONTACT_SECONDS_MAX = 1.5
# How often the witness tries each way, what an attempt may take, and from when on it
# is slow: far above a healthy one, also on a busy machine.
DRILL_WITNESS_SECONDS = 0.3
DRILL_WITNESS_SECONDS_MAX = 5.0
DRILL_SLOW_SECONDS = 1.0
# Messages that it can receive while sends fail; without any, it receives nothing.
DRILL_WITNESS_STOCK = 200
# What is seen for a shorter time is left out of the report.
DRILL_SEEN_SECONDS_MIN = 1.0
# How long the entities of a drill are tried to be removed: a full disk, a stall and a
# fault of the switchboard that could not be ended are over by then.
DRILL_REMOVE_SECONDS = 45.0
# What the proxy may take to answer a command.
DRILL_PROXY_SECONDS = 20.0
# What a child may take to end before it is killed: its pair ends, and its ledger is
# written.
DRILL_END_SECONDS = 20.0
# One line of a child: far above any that they write.
DRILL_LINE_BYTES_MAX = 16 * 1024 * 1024
# The end of a log in which the last error is looked for.
DRILL_LOG_CHARS_MAX = 4000
# Messages of one peek, and what a peek may take.
DRILL_PEEK_MESSAGES_MAX = 250
DRILL_LOOK_SECONDS_MAX = 5.0
# Messages of one receive, and what it waits for the first.
DRILL_RECEIVE_MESSAGES_MAX = 50
DRILL_RECEIVE_WAIT_SECONDS = 1.0
# One call of a receiver to a server that does not answer, and the pause after it.
DRILL_CALL_SECONDS_MAX = 3.0
DRILL_CALL_PAUSE_SECONDS = 0.2
# Sessions that a receiver holds at a time, and how long it waits for one.
DRILL_SESSIONS_MAX = 3
DRILL_SESSION_SECONDS = 2.0
# How often a child reports.
DRILL_SAY_SECONDS = 0.25
# How often the syphon on Spark reports; its tasks are short, to show progress.
DRILL_SPARK_LOOK_SECONDS = 1
DRILL_TASK_SECONDS = 5
# How often a line is printed without a terminal, and with --json.
DRILL_LINE_SECONDS = 5.0
DRILL_JSON_SECONDS = 1.0
# Rates on the screen are averages over this long.
DRILL_RATE_SECONDS = 3.0
# For the estimate of the time that is left: what follows the traffic, and judging.
DRILL_TAIL_SECONDS = 12.0
DRILL_JUDGE_SECONDS = 3.0
# How many messages a second a syphon moves, roughly.
DRILL_HOME_RATE = 1000

# -- the console -------------------------------------------------------------------

# A working day, so that people sign in once; a stolen cookie ends with it.
CONSOLE_SESSION_SECONDS = 8 * 3600
# Sessions that are remembered; the oldest makes room. One takes about 1 KiB.
CONSOLE_SESSIONS_MAX = 1_000
# A link is for the browser that opens at once.
CONSOLE_LINK_SECONDS = 60
CONSOLE_LINKS_MAX = 100
# What a form may have; messages that are larger are sent by a client.
CONSOLE_FORM_BYTES_MAX = 4 * 1024 * 1024
# Fields of a form: a page of messages with their boxes, and some more.
CONSOLE_FIELDS_MAX = 2_000
# Messages on a page of a list, and entities on a page of the overview.
CONSOLE_PAGE_MESSAGES = 50
CONSOLE_PAGE_ENTITIES = 100
# A search stops after so many messages or so long, and says where to go on: a thread
# that decodes takes time from the event loop, and people wait no longer.
CONSOLE_SCAN_MESSAGES_MAX = 10_000
CONSOLE_SCAN_SECONDS_MAX = 0.2
# What a line of a list shows of a body, and a page of one message.
CONSOLE_PREVIEW_BYTES = 160
CONSOLE_BODY_BYTES_MAX = 64 * 1024
# Copies of a message that one form sends.
CONSOLE_COPIES_MAX = 1_000
# How often rates are measured while people look, and for how long after that.
CONSOLE_SAMPLE_SECONDS = 2.0
CONSOLE_IDLE_SECONDS = 300.0
# Two minutes of samples; a rate is the mean of the last ten seconds.
CONSOLE_SAMPLES_MAX = 61
CONSOLE_RATE_SAMPLES = 5
# Open pages that follow.
CONSOLE_STREAMS_MAX = 100
# Messages that one transaction moves or deletes: about 10 ms of a turn.
CONSOLE_CHUNK_MESSAGES = 100
# Jobs that work at the same time, and those that are remembered.
CONSOLE_JOBS_MAX = 4
CONSOLE_JOBS_KEPT = 50
# A file of messages is read into memory; larger ones are cut by lines.
CONSOLE_IMPORT_BYTES_MAX = 32 * 1024 * 1024
# Imports that did not come to their end, of which the next line is remembered.
CONSOLE_IMPORTS_KEPT = 20
# Reasons of dead letters that a page tells apart, and pages whose counts are kept.
CONSOLE_GROUPS_MAX = 200
CONSOLE_GROUPINGS_KEPT = 50
# Reports of clients that are looked at, and entities whose states are drawn.
CONSOLE_EVENTS_MAX = 2_000
CONSOLE_LANES_MAX = 20
# Entries of the log of changes that each shard keeps.
CONSOLE_AUDIT_MAX = 500

# Events of a pair that wait to be reported to its secondary, how long each may take,
# and how many days they are kept there. What is more is dropped.
REPORTS_WAITING_MAX = 100
REPORT_SECONDS_MAX = 30.0
REPORT_DAYS = 7

# -- the tools for tests -----------------------------------------------------------

# Far longer than anything here takes; a test should fail rather than hang.
TESTING_CALL_SECONDS_MAX = 30
# What a server process may take to start, and to stop.
TESTING_READY_SECONDS_MAX = 60.0
TESTING_STOP_SECONDS_MAX = 30.0
# How far the ends of two locks may be told apart the wrong way round: a broker counts
# them by a steady clock and tells them by the wall clock. Both are read in whole
# milliseconds, and a time service slews the second by so much of the time at most.
CLOCK_ROUNDED_MS = 2
CLOCK_SLEWED_MAX = 0.0005
# What the proxy reads at once, and pieces that wait while a fault holds them back.
PROXY_READ_BYTES = 64 * 1024
PROXY_PIECES_MAX = 64
# A command to the proxy is one line.
PROXY_COMMAND_BYTES_MAX = 4096
# Where bytes trickle, so much comes at a time.
PROXY_TRICKLE_SECONDS = 0.05
# What a test waits for something to happen on the proxy.
PROXY_WAIT_SECONDS_MAX = 30.0
# The wiretap reads frames of any size that a peer could have agreed to.
WIRETAP_FRAME_BYTES_MAX = 1 << 24
# Enough to see a pattern; the counts are exact in any case.
VERDICT_EXAMPLES_MAX = 20
# Lines that are parsed together, which takes half as long as one by one.
RECORDER_LINES_MAX = 500

# -- reports of ledgers ------------------------------------------------------------

# Days of a made-up ledger that are written at once: each holds a day in memory.
SYNTHETIC_THREADS = 2
# Footers that are read at once; each waits for the disk or the network.
REPORT_FOOTER_THREADS = 8
# Stretches of one primary that are this close are one outage: a relapse follows a
# failback within some pings, and intervals of pings are minutes.
REPORT_OUTAGE_GAP_MINUTES = 5
# Minutes in a row in which all sends failed, before that is an outage without a pair.
REPORT_FAILED_MINUTES_MIN = 3
# Steps of a rate over time on a page: two for each pixel would not be seen.
REPORT_STEPS_MAX = 480
# Entities that a report lists, those with the most operations first.
REPORT_ENTITIES_MAX = 1_000
# Rows by day, entity and stage that are collected; more are in --parquet alone.
REPORT_DETAIL_ROWS_MAX = 20_000
# Outages that are drawn minute by minute, with so many minutes before and after ...
REPORT_OUTAGES_DRAWN_MAX = 12
REPORT_MINUTES_AROUND = 10
# ... and no more than a day of them.
REPORT_MINUTES_DRAWN_MAX = 1_440
# Lines of a report's tables on a terminal; --json and --html have all of them.
REPORT_DAYS_SHOWN_MAX = 31
REPORT_ENTITIES_SHOWN_MAX = 20
# A made-up ledger: 10 years, as many entities as a namespace may have, and an outage
# for each of some days.
SYNTHETIC_DAYS_MAX = 3_660
SYNTHETIC_ENTITIES_MAX = 10_000
SYNTHETIC_OUTAGES_MAX = 100
# Bars of a picture; more days than this are drawn as weeks.
REPORT_BARS_MAX = 120
