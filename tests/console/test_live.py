"""Pages that follow: what the stream sends, and when it ends."""

from __future__ import annotations

from pathlib import Path

from tests.console.site import ConsoleSite, Stream
from twinbus.testing.server_process import ServerProcess


def test_a_stream_sends_what_has_changed(site: ConsoleSite, queue: str) -> None:
    client = site.signed_in()
    stream = Stream(client, f"events?view=entity&path={queue}")
    stream.until("event: figures")

    site.send(queue, "a", "b", "c")

    assert "<dd>3</dd>" in stream.until("<dd>3</dd>")
    stream.close()


def test_rates_are_measured_while_people_look(site: ConsoleSite, queue: str) -> None:
    client = site.signed_in()
    stream = Stream(client, f"events?view=overview&q={queue}")
    stream.until("event: table")
    site.send(queue, *(["x"] * 50))
    stream.until("line sent")

    [row] = client.json("", q=queue)["entities"]

    assert row["in_per_second"] > 0
    assert max(taken for taken, _given in row["history"]) > 0
    stream.close()


def test_a_stream_ends_with_its_session(site: ConsoleSite) -> None:
    client = site.signed_in()
    stream = Stream(client, "events?view=overview")
    stream.until("event: summary")

    client.post("sign-out", {})

    assert stream.ends()
    stream.close()


def test_a_stream_needs_the_right_of_its_page(site: ConsoleSite) -> None:
    stream = Stream(site.signed_in("Listen"), "events?view=overview")

    assert stream.ends()
    stream.close()
    assert site.signed_in().get("events", view="nothing").status == 404


def test_the_server_stops_while_pages_are_open(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {"queues": ["q"]}, name="contoso") as process:
        stream = Stream(ConsoleSite(process).signed_in(), "events?view=overview")
        stream.until("event: summary")

        assert process.stop() == 0
        assert "Traceback" not in process.log.read_text()
        stream.close()
