"""Signing in to the console: keys, links, cookies, and what is refused before."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console.site import ROOT, ConsoleClient, ConsoleSite
from twinbus.server.http.console import page
from twinbus.testing.server_process import ServerProcess

STATIC = Path(page.__file__).parent / "static"


def test_a_page_leads_to_the_sign_in_and_back(site: ConsoleSite) -> None:
    client = site.client()

    refused = client.get("", path="orders")

    assert refused.status == 303
    assert refused.location == f"{ROOT}sign-in?next=%3Fpath%3Dorders"
    fields = {"name": "manage", "key": "manage-key", "next": "?path=orders"}
    assert client.post("sign-in", fields).location == f"{ROOT}?path=orders"
    assert client.get().status == 200


def test_a_wrong_key_is_refused_with_the_reason(site: ConsoleSite) -> None:
    client = site.client()

    answer = client.post("sign-in", {"name": "manage", "key": "wrong"})

    assert answer.status == 401
    assert answer.problem == "The name of the rule or its key is wrong."
    assert client.get().status == 303


def test_the_key_of_an_entity_opens_that_entity_alone(site: ConsoleSite) -> None:
    fields = {"name": "own-rule", "key": "own-key"}
    assert site.client().post("sign-in", fields).status == 401

    client = site.client().sign_in("own-rule", "own-key", "own")

    assert ">own-rule</span><span>Listen<" in client.get().text


def test_the_cookie_is_for_this_server_and_no_script(site: ConsoleSite) -> None:
    answer = site.client().post("sign-in", {"name": "manage", "key": "manage-key"})

    [cookie] = answer.headers.get_all("Set-Cookie") or []
    name, _, rest = cookie.partition("=")
    assert name == f"twinbus-contoso-{site.port}"
    attributes = {each.strip().lower() for each in rest.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    assert not any(each.startswith("domain") for each in attributes)


def test_over_https_the_cookie_is_bound_to_the_host(site: ConsoleSite) -> None:
    import http.client
    import ssl

    tls = ssl.create_default_context(cafile=site.process.ca_file)
    port = site.process.ports["https"]
    connection = http.client.HTTPSConnection("localhost", port, context=tls)
    own = {"Origin": f"https://localhost:{port}", "Sec-Fetch-Site": "same-origin"}
    own["Content-Type"] = "application/x-www-form-urlencoded"
    connection.request("POST", f"{ROOT}sign-in", "name=manage&key=manage-key", own)
    cookie = connection.getresponse().headers["Set-Cookie"]
    connection.close()

    assert cookie.startswith(f"__Host-twinbus-contoso-{port}=")
    assert "secure" in cookie.lower()


def test_signing_out_ends_the_session_on_the_server(site: ConsoleSite) -> None:
    client = site.signed_in()
    kept = dict(client.cookies)

    client.post("sign-out", {})

    client.cookies = kept
    assert client.get().status == 303


def test_a_session_ends_with_its_key(site: ConsoleSite) -> None:
    root = {"Authorization": site.token(), "Accept": "application/json"}
    client = ConsoleClient(site.port)
    put = json.dumps({"properties": {"rights": ["Manage"]}}).encode()
    client.ask("PUT", "/$authorizationRules/turning", put, root)
    keys = client.ask("POST", "/$authorizationRules/turning/listKeys", b"", root)
    first = site.client().sign_in("turning", keys.json["primaryKey"])
    second = site.client().sign_in("turning", keys.json["secondaryKey"])

    change = json.dumps({"keyType": "PrimaryKey"}).encode()
    client.ask("POST", "/$authorizationRules/turning/regenerateKeys", change, root)

    assert first.get().status == 303
    assert second.get().status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "null"},
    ],
)
def test_another_site_changes_nothing(
    site: ConsoleSite, headers: dict[str, str]
) -> None:
    client = site.signed_in()
    bare = {"Content-Type": "application/x-www-form-urlencoded"}

    answer = client.ask("POST", "sign-out", b"", {**bare, **headers})

    assert answer.status == 403
    assert client.get().status == 200


def test_a_change_without_an_origin_is_refused(site: ConsoleSite) -> None:
    client = site.signed_in()

    assert client.ask("POST", "sign-out", b"").status == 403


def test_a_name_that_was_made_to_resolve_here_is_refused(site: ConsoleSite) -> None:
    client = ConsoleClient(site.port, host="evil.example")

    assert client.get("sign-in").status == 403


def test_every_answer_has_the_policy(site: ConsoleSite) -> None:
    client = site.signed_in()

    for answer in (
        client.get(),
        client.get("sign-in"),
        client.get("nothing-here"),
        client.get("static/console.css"),
        site.client().get(),
    ):
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_pages_have_no_inline_script_or_style(site: ConsoleSite) -> None:
    for text in (site.signed_in().get().text, site.client().get("sign-in").text):
        assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", text)


@pytest.mark.parametrize("name", ["../route.py", "..%2froute.py", "VENDORED.md", "x"])
def test_only_files_of_the_console_are_given_out(site: ConsoleSite, name: str) -> None:
    assert site.client().get(f"static/{name}").status == 404


def test_files_of_others_are_as_they_were_published() -> None:
    listed = (STATIC / "VENDORED.md").read_text()

    for file in STATIC.glob("htmx-*.js"):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert f"| {file.name} |" in listed
        assert digest in listed


def test_a_link_signs_in_once(site: ConsoleSite) -> None:
    offered = site.client().ask(
        "POST",
        "link",
        b"",
        {"Authorization": site.token(name="listen", key="listen-key")},
    )
    path = offered.json["path"]
    client = site.client()

    assert client.ask("GET", path).location == ROOT

    assert ">listen</span><span>Listen<" in client.get().text
    again = site.client().ask("GET", path)
    assert again.status == 403
    assert again.problem.startswith("The link was used already or is too old.")


def test_another_site_cannot_open_a_link(site: ConsoleSite) -> None:
    offered = site.client().ask("POST", "link", b"", {"Authorization": site.token()})
    client = site.client()

    led = client.ask(
        "GET", offered.json["path"], None, {"Sec-Fetch-Site": "cross-site"}
    )

    assert led.status == 403
    assert client.cookies == {}


def test_a_link_ends_with_the_time_of_its_token(site: ConsoleSite) -> None:
    answer = site.client().ask("POST", "link", b"", {"Authorization": "Bearer x"})

    assert answer.status == 401
    assert site.signed_in().post("link", {}).status == 403


def test_a_signed_in_browser_is_no_stranger(site: ConsoleSite) -> None:
    client = site.signed_in()

    statuses = {client.get("static/console.css").status for _ in range(250)}

    assert statuses == {200}


def test_the_command_prints_a_link_that_signs_in(site: ConsoleSite) -> None:
    command = [
        sys.executable,
        "-m",
        "twinbus.cli.main",
        "console",
        "--no-open",
        "--json",
    ]
    command += [site.process.connection_string]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    link = json.loads(done.stdout)["link"]
    prefix = f"http://localhost:{site.port}"

    client = ConsoleClient(site.port, host="localhost")

    assert link.startswith(prefix)
    assert client.ask("GET", link.removeprefix(prefix)).status == 303
    assert client.get().status == 200


@pytest.mark.parametrize(("options", "status"), [([], 401), (["--console"], 200)])
def test_without_dev_the_console_is_asked_for(
    tmp_path: Path, options: list[str], status: int
) -> None:
    process = ServerProcess(tmp_path, {"queues": ["orders"]}, name="contoso")
    process._command.remove("--dev")
    process._command += ["--allow-plaintext", "--host", "127.0.0.1", "--reserve", "0"]
    process._command += options

    with process:
        page = ConsoleClient(process.ports["http"]).get("sign-in")

    assert page.status == status
    assert "SAS_KEY_VALUE" not in page.text
