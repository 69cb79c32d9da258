"""The authorization rules of a namespace and their keys.

Owns where they are kept (a setting of the namespace's store), how the first one is
made and how one is changed. Keys are `Secret`s from here on: nothing in this file
prints one. Every change runs inside the store's transaction.
Knows nothing about claims: `core/rights.py` says what a key gives.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

from twinbus import limits
from twinbus.core.entity import rule_from_json, rule_to_json
from twinbus.core.rights import AuthorizationRule, Right, check_rules, dated
from twinbus.core.sas import DEV_KEY_NAME, DEV_KEY_TEXT, Secret, key_from
from twinbus.errors import ArgumentError, ConfigError, EntityExists, EntityNotFound
from twinbus.store.base import Store
from twinbus.store.opening import DatabaseUrl, read_shared_setting
from twinbus.store.shards import read_copied

# The rule that every namespace is born with; the real service uses the same name.
ROOT_RULE_NAME = DEV_KEY_NAME
SETTING = "authorization_rules"
# The key of `--dev` that Microsoft's emulator documents.
DOCUMENTED_KEY = Secret(DEV_KEY_TEXT)


def new_key() -> Secret:
    """A random key."""
    return key_from(secrets.token_bytes(limits.KEY_BYTES))


def load_rules(store: Store) -> list[AuthorizationRule]:
    """The rules of the namespace, the root rule first; none before `ensure_root`."""
    return _parse(store.setting(SETTING))


def rules_text(store: Store) -> str:
    """The rules as they are kept."""
    return store.setting(SETTING) or "[]"


def save_rules(store: Store, rules: Sequence[AuthorizationRule], now_ms: int) -> None:
    """Keep these rules instead of the old ones."""
    check_rules(rules)
    kept = dated(rules, load_rules(store), now_ms)
    store.put_setting(SETTING, json.dumps([rule_to_json(rule) for rule in kept]))


def ensure_root(store: Store, now_ms: int) -> list[AuthorizationRule]:
    """Make the root rule with random keys if the namespace has none; returns all."""
    rules = load_rules(store)
    if not any(rule.name == ROOT_RULE_NAME for rule in rules):
        root = AuthorizationRule(ROOT_RULE_NAME, Right.MANAGE, new_key(), new_key())
        save_rules(store, [root, *rules], now_ms)
    return load_rules(store)


def merge_rules(store: Store, wanted: Iterable[AuthorizationRule], now_ms: int) -> None:
    """Add rules that are missing and change those that differ; others stay."""
    rules = {rule.name: rule for rule in load_rules(store)}
    before = dict(rules)
    rules.update({rule.name: rule for rule in wanted})
    if rules != before:
        save_rules(store, list(rules.values()), now_ms)


def add_rule(store: Store, rule: AuthorizationRule, now_ms: int) -> None:
    """Add a rule with a new name."""
    rules = load_rules(store)
    if any(other.name == rule.name for other in rules):
        raise EntityExists(
            f"The authorization rule '{rule.name}' already exists. "
            "Delete it first, or choose another name."
        )
    save_rules(store, [*rules, rule], now_ms)


def put_rule(store: Store, name: str, rights: Right, now_ms: int) -> AuthorizationRule:
    """Make a rule with new keys, or give an old one other rights."""
    rules = {rule.name: rule for rule in load_rules(store)}
    if name in rules:
        rules[name] = dataclasses.replace(rules[name], rights=rights)
    else:
        rules[name] = AuthorizationRule(name, rights, new_key(), new_key())
    if name == ROOT_RULE_NAME and rights != Right.MANAGE:
        raise ArgumentError(
            f"'{name}' keeps all rights: without them no key could change it again."
        )
    save_rules(store, list(rules.values()), now_ms)
    return rules[name]


def delete_rule(store: Store, name: str, now_ms: int) -> None:
    """Remove a rule; the root rule stays."""
    rule = find_rule(load_rules(store), name)
    if rule.name == ROOT_RULE_NAME:
        raise ConfigError(
            f"'{name}' cannot be deleted. Give it new keys with `keys regenerate`."
        )
    rest = [other for other in load_rules(store) if other != rule]
    save_rules(store, rest, now_ms)


def regenerate_key(
    store: Store, name: str, now_ms: int, *, secondary: bool
) -> AuthorizationRule:
    """Give a rule another primary or secondary key; the old one ends at once."""
    rules = load_rules(store)
    old = find_rule(rules, name)
    if secondary:
        new = dataclasses.replace(old, secondary_key=new_key())
    else:
        new = dataclasses.replace(old, primary_key=new_key())
    save_rules(store, [new if rule is old else rule for rule in rules], now_ms)
    return new


def find_rule(rules: Iterable[AuthorizationRule], name: str) -> AuthorizationRule:
    """The rule of that name."""
    for rule in rules:
        if rule.name == name:
            return rule
    raise EntityNotFound(f"authorization rule {name}")


def with_dev_key(
    rules: Iterable[AuthorizationRule], key: Secret
) -> list[AuthorizationRule]:
    """Let the key of `--dev` stand for the root rule.

    The random key goes on working. That of `--dev` is never stored, so it is gone when
    the namespace is served without it.
    """
    return [
        dataclasses.replace(rule, primary_key=key, secondary_key=rule.primary_key)
        if rule.name == ROOT_RULE_NAME
        else rule
        for rule in rules
    ]


def read_shared_rules(url: DatabaseUrl, namespace: str) -> list[AuthorizationRule]:
    """The rules of a namespace in a database, also while servers have it."""
    return _parse(read_shared_setting(url, namespace, SETTING))


def read_rules(folder: Path) -> list[AuthorizationRule]:
    """The rules of a namespace's folder, also while a server has it.

    Only reads one setting of a shard, with a connection that cannot write.
    """
    return _parse(read_copied(folder, SETTING))


def _parse(text: str | None) -> list[AuthorizationRule]:
    if text is None:
        return []
    return [rule_from_json(data) for data in json.loads(text)]
