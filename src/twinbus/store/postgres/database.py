"""The database of a shard: where it is, what it must be, and its schema.

Owns the connection and its settings, the schema with its migrations, and the lines that
say why a database cannot be used. Rules: a schema belongs to one shard of a namespace
and is made or raised in one transaction; a newer or foreign one is refused. No text
shows the password of a URL. Knows nothing of messages.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, TypeAlias

import psycopg
from psycopg import sql
from psycopg._preparing import PrepareManager
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from twinbus import limits
from twinbus.errors import ConfigError
from twinbus.store.migrations import pending
from twinbus.store.postgres import arrays
from twinbus.store.queries import load

log = logging.getLogger("twinbus.store")

# The oldest one that is tested.
VERSION_MIN = 15
# In a table that says that a schema is ours.
_VERSION = "SELECT number FROM twinbus_schema"

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# What a session is set to. Plans follow indexes, whatever the statistics say: a table
# that was empty a minute ago may have a million rows now.
_SETTINGS = {
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": f"{limits.PG_IDLE_TURN_SECONDS * 1000:.0f}",
    "lock_timeout": f"{limits.PG_LOCK_SECONDS * 1000:.0f}",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "client_encoding": "UTF8",
}


class _Statements(PrepareManager):
    """Statements that are prepared at their first use, and stay so.

    The driver forgets all of them after a rollback, in case a table was made in what
    is undone. In a pipeline that comes too late: one that was forgotten may be on its
    way. No turn makes a table.
    """

    prepare_threshold = 0
    prepared_max = 1_000_000

    def _should_discard(self, *_given: Any) -> bool:
        return False


def schema_name(namespace: str, shard: int) -> str:
    """The schema of a shard. Names of namespaces have no dot."""
    first = f"twinbus_{namespace.lower()}"
    return f"{first}.{shard}" if shard else first


class Database:
    """The schema of one shard in a database."""

    def __init__(self, url: str, namespace: str, shard: int) -> None:
        self._url = url
        self._given = _parsed(url)
        self.namespace = namespace
        self.shard = shard
        self.schema = schema_name(namespace, shard)

    @property
    def where(self) -> str:
        """What people are told: without user and password."""
        host = self._given.get("host") or self._given.get("hostaddr") or "localhost"
        port = self._given.get("port")
        at = f"{host}:{port}" if port else host
        return f"the PostgreSQL database {self._given.get('dbname') or ''} at {at}"

    def connect(self, seconds_max: float = limits.PG_CONNECT_SECONDS) -> Connection:
        """A connection that sees the schema; `psycopg.Error` if there is none now."""
        connection = psycopg.connect(
            make_conninfo(self._url, **self._options(seconds_max)),
            autocommit=True,
        )
        try:
            connection._prepared = _Statements()
            # One type for all numbers, so that a statement is prepared once.
            connection.adapters.register_dumper(int, Int8BinaryDumper)
            arrays.register(connection)
            settings = {**_SETTINGS, "search_path": f'"{self.schema}"'}
            names = sql.SQL(", ").join(
                sql.SQL("set_config({}, {}, false)").format(name, value)
                for name, value in settings.items()
            )
            connection.execute(sql.SQL("SELECT {}").format(names))
        except BaseException:
            connection.close()
            raise
        return connection

    def _options(self, seconds_max: float) -> dict[str, Any]:
        """What a connection has beside the URL; the URL's own options come first."""
        ours = {
            "connect_timeout": max(round(seconds_max), 1),
            "application_name": f"twinbus {self.namespace}",
            "target_session_attrs": "read-write",
            # A network that swallows packets is noticed after some seconds, also by
            # one who waits for an answer and has nothing to send but probes.
            "tcp_user_timeout": round(limits.PG_SILENT_SECONDS * 1000),
            "keepalives_idle": round(limits.PG_PROBE_SECONDS),
            "keepalives_interval": round(limits.PG_PROBE_SECONDS),
        }
        return {key: value for key, value in ours.items() if key not in self._given}

    # -- at start --------------------------------------------------------------

    def open(self, *, make: bool = True) -> Connection:
        """Connect, check the database, and make or raise the schema.

        `ConfigError` says what to do where the database cannot be used, or has no such
        schema and none may be made.
        """
        try:
            connection = self.connect()
        except psycopg.Error as error:
            raise ConfigError(self._refusal(error)) from None
        try:
            self._check(connection)
            self._migrate_if_needed(connection, make=make)
        except psycopg.Error as error:
            connection.close()
            raise ConfigError(self._refusal(error)) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def read_setting(self, name: str) -> str | None:
        """One setting of the shard, also while servers have it; makes nothing."""
        try:
            with self.connect() as connection:
                if not self._version(connection):
                    raise ConfigError(
                        f"There is no namespace {self.namespace} in {self.where}. "
                        "Check --database and --namespace; `twinbus serve` makes one."
                    )
                query = load("postgres", "entities")["setting"].encode()
                row = connection.execute(query, (name,)).fetchone()
        except psycopg.Error as error:
            raise ConfigError(self._refusal(error)) from None
        return None if row is None else str(row[0])

    def _refusal(self, error: psycopg.Error) -> str:
        """Say in one line why the database cannot be used."""
        text = _one_line(error)
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return (
                f"The role of --database may not make the schema {self.schema} in "
                f"{self.where} ({text}). Grant it CREATE on the database, or let its "
                "owner start the first node."
            )
        if "session is read-only" in text or "not read-write" in text:
            return (
                f"{_capital(self.where)} takes no writes. Give the primary's address."
            )
        if error.sqlstate == "53300" or "too many" in text:
            return (
                f"{_capital(self.where)} has no connection left ({text}). A server "
                "takes two for each shard: raise max_connections."
            )
        if isinstance(error, psycopg.OperationalError) and "FATAL" not in text:
            return (
                f"{_capital(self.where)} does not answer ({text}). Check that it runs, "
                "and the host and port of --database."
            )
        return (
            f"{_capital(self.where)} refuses the connection ({text}). Check the user, "
            "the password and the name in --database."
        )

    def _check(self, connection: Connection) -> None:
        version = connection.info.server_version
        if version < VERSION_MIN * 10_000:
            raise ConfigError(
                f"{_capital(self.where)} is PostgreSQL {version // 10_000}. twinbus "
                f"needs {VERSION_MIN} or newer."
            )
        query = "SELECT current_setting('fsync'), extract(epoch FROM clock_timestamp())"
        fsync, seconds = _one(connection.execute(query))
        if fsync != "on" and self.shard == 0:
            text = "%s has fsync = off: what it has accepted can be lost"
            log.warning(text, self.where)
        apart = time.time() - float(seconds)
        if abs(apart) > limits.PG_CLOCK_APART_SECONDS:
            raise ConfigError(
                f"The clock of this machine is {abs(apart):.0f} seconds "
                f"{'ahead of' if apart > 0 else 'behind'} that of {self.where}. Set "
                "both by NTP: tokens and messages end by them."
            )
        self._check_standby(connection)

    def _check_standby(self, connection: Connection) -> None:
        """Refuse a database whose commits would wait for a standby that is away."""
        names = self.standby_names(connection)
        if not names:
            return
        unsynced: list[str | None] = []

        def note(found: psycopg.errors.Diagnostic) -> None:
            unsynced.append(found.source_function)

        connection.add_notice_handler(note)
        # No setting of PostgreSQL ends this wait.
        timer = threading.Timer(limits.PG_STANDBY_SECONDS, connection.cancel)
        timer.start()
        try:
            connection.execute(load("postgres", "turns")["sync"].encode())
        finally:
            timer.cancel()
            connection.remove_notice_handler(note)
        if unsynced:
            raise ConfigError(
                f"No standby has confirmed a write of {self.where} within "
                f"{limits.PG_STANDBY_SECONDS:g} seconds, and it has "
                f"synchronous_standby_names = '{names}'. Start the standby, or empty "
                "the setting."
            )

    @staticmethod
    def standby_names(connection: Connection) -> str:
        """The standbys that a commit waits for; empty for none."""
        query = "SELECT current_setting('synchronous_standby_names')"
        return str(_one(connection.execute(query))[0])

    def durability(self, connection: Connection) -> str:
        """Where a turn is when it is acknowledged."""
        return "standby" if self.standby_names(connection) else "local"

    # -- schema ----------------------------------------------------------------

    def _migrate_if_needed(self, connection: Connection, *, make: bool) -> None:
        steps = pending("postgres", 0, self.where)
        version = self._version(connection)
        if version == steps[-1].number:
            return
        if version is None and not make:
            raise ConfigError(
                f"Shard {self.shard} of {self.namespace}, the schema {self.schema}, is "
                f"missing in {self.where}. Restore it with the others from one backup: "
                "what it held is not made anew."
            )
        try:
            self._migrate(connection)
        except (
            psycopg.errors.UniqueViolation,
            psycopg.errors.DuplicateSchema,
            psycopg.errors.DuplicateTable,
        ):
            # Another node has made it at the same time.
            self._migrate(connection)

    def _version(self, connection: Connection) -> int | None:
        """The version of the schema; None if there is none, 0 if it is not ours."""
        is_there, is_ours = self._look(connection)
        if not is_ours:
            return 0 if is_there else None
        return int(_one(connection.execute(_VERSION))[0])

    def _look(self, connection: Connection) -> tuple[bool, bool]:
        """Whether there is a schema, and whether it is ours; locks nothing."""
        query = "SELECT to_regnamespace(%s) IS NOT NULL, to_regclass(%s) IS NOT NULL"
        table = f'"{self.schema}".twinbus_schema'
        is_there, is_ours = _one(connection.execute(query, (f'"{self.schema}"', table)))
        return is_there, is_ours

    def _migrate(self, connection: Connection) -> None:
        with connection.transaction():
            is_there, is_ours = self._look(connection)
            if is_there and not is_ours:
                raise ConfigError(
                    f"The schema {self.schema} in {self.where} was not made by "
                    "twinbus. Serve another namespace, or use another database."
                )
            if not is_there:
                schema = sql.Identifier(self.schema)
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
                connection.execute(
                    "CREATE TABLE twinbus_schema (number bigint NOT NULL)"
                )
                connection.execute("INSERT INTO twinbus_schema VALUES (0)")
            # Before it is read: nodes that start at the same time would each hold what
            # the others wait for.
            connection.execute("LOCK TABLE twinbus_schema")
            current = int(_one(connection.execute(_VERSION))[0])
            where = f"The schema {self.schema} in {self.where}"
            for step in pending("postgres", current, where):
                for statement in step.sql.split(";\n"):
                    connection.execute(statement.encode())
                query = "UPDATE twinbus_schema SET number = %s"
                connection.execute(query, (step.number,))
            query = "INSERT INTO shard VALUES (%s, 0) ON CONFLICT DO NOTHING"
            connection.execute(query, (self.shard,))


def _parsed(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # The text of the error may have the password in it.
        raise ConfigError(
            "--database is not a URL of PostgreSQL. Write it as "
            "postgresql://USER:PASSWORD@HOST:PORT/NAME."
        ) from None


def _one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None
    return row


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines).rstrip(".")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
