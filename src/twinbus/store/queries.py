"""The loader of named queries.

Owns the format of the `.sql` files: each query starts with a line `-- name: append`,
then one comment line that says what it does, then the statement. The Python around a
query calls it by its name and never builds SQL. Knows nothing of a database.
"""

from __future__ import annotations

from importlib.resources import files

from twinbus.errors import Bug

_NAME = "-- name: "


def load(dialect: str, *topics: str) -> dict[str, str]:
    """Read the queries of these files (`<dialect>/sql/<topic>.sql`) by name."""
    queries: dict[str, str] = {}
    for topic in topics:
        path = files("twinbus.store") / dialect / "sql" / f"{topic}.sql"
        for name, sql in parse(path.read_text("utf-8")).items():
            if name in queries:
                raise Bug(f"The query {name} is there twice.")
            queries[name] = sql
    return queries


def parse(text: str) -> dict[str, str]:
    """Split the text of one file; the description is not part of the statement."""
    queries: dict[str, str] = {}
    for part in text.split(_NAME)[1:]:
        name, _, rest = part.partition("\n")
        description, _, sql = rest.partition("\n")
        if not description.startswith("-- ") or name in queries:
            raise Bug(f"The query {name} has no description, or is there twice.")
        queries[name] = sql.strip().removesuffix(";")
    return queries
