"""RabbitMQ's shovel under measurement: from some queues into one, inside one broker.

Owns the shovels of a round and the time from the first moved message to the last. The
broker itself starts the shovels, all at once, and looks at the queue that they fill,
fifty times a second; so no client disturbs it. Shovels connect within the broker,
without a socket: the fastest way that there is.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from bench.messages import messages
from bench.target import Target
from bench.worker import connect

CONTROL = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")
HOME = "home"
_SECONDS_MAX = 300
_DIFFERENT = 2_000
_SHOVEL = {
    "src-protocol": "amqp091",
    "src-uri": "amqp://",
    "src-prefetch-count": 1000,
    "dest-protocol": "amqp091",
    "dest-uri": "amqp://",
    "dest-queue": HOME,
    "ack-mode": "on-confirm",
}
# Starts the shovels as `rabbitmqctl set_parameter` does, and gives the milliseconds
# from the first message at home to the last. Then all is settled and forgotten.
_MOVE = """\
Queue = fun(Name) ->
  {ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, Name)),
  Q
end,
Depth = fun(Name) ->
  [{messages, N}] = rabbit_amqqueue:info(Queue(Name), [messages]),
  N
end,
Until = fun Until(Done) ->
  case Done() of
    true -> erlang:monotonic_time(millisecond);
    false -> timer:sleep(20), Until(Done)
  end
end,
Home = <<"%(home)s">>,
Names = [%(names)s],
0 = Depth(Home),
%(count)d = lists:sum([Depth(Name) || Name <- Names]),
[ok = rabbit_runtime_parameters:parse_set(<<"/">>, <<"shovel">>, Name, Text, none)
  || {Name, Text} <- [%(shovels)s]],
First = Until(fun() -> Depth(Home) > 0 end),
Last = Until(fun() -> Depth(Home) >= %(count)d end),
Until(fun() -> lists:all(fun(Name) -> Depth(Name) =:= 0 end, Names) end),
[rabbit_runtime_parameters:clear(<<"/">>, <<"shovel">>, Name, <<"bench">>)
  || Name <- Names],
{ok, %(count)d} = rabbit_amqqueue:purge(Queue(Home)),
Last - First.
"""


class Shovels:
    """One broker with its queues, as many as there are shovels."""

    def __init__(self, target: Target, folder: Path, queues: int, count: int) -> None:
        self.count = count - count % queues
        self._seconds = 0.0
        self._environment = os.environ | json.loads(
            (folder / "environment.json").read_text()
        )
        self._names = [f"backlog-{queues}-{index}" for index in range(queues)]
        self._connection = connect(target)
        # This makes the queues; the one at home has to be there before it is looked at.
        self._senders = [
            self._connection.sender(target.address.format(name), window=target.window)
            for name in (*self._names, HOME)
        ]
        self._messages = list(messages(_DIFFERENT))

    def prepare(self) -> None:
        """Fill the queues."""
        share = self.count // len(self._names)
        for sender in self._senders[:-1]:
            for first in range(0, share, _DIFFERENT):
                sender.send(self._messages[: share - first])

    def move(self) -> None:
        """Let the shovels move all of it."""
        done = subprocess.run(
            [str(CONTROL), "--quiet", "eval", self._script()],
            env=self._environment,
            capture_output=True,
            check=False,
            timeout=_SECONDS_MAX,
        )
        assert not done.returncode, done.stderr.decode() or done.stdout.decode()
        self._seconds = int(done.stdout) / 1000

    def seconds(self) -> float:
        """From the first moved message to the last."""
        return self._seconds

    def close(self) -> None:
        self._connection.close()

    def _script(self) -> str:
        settings = {
            name: json.dumps({**_SHOVEL, "src-queue": name}) for name in self._names
        }
        shovels = [
            f"{{{_binary(name)}, {_binary(text)}}}" for name, text in settings.items()
        ]
        return _MOVE % {
            "home": HOME,
            "names": ", ".join(map(_binary, self._names)),
            "shovels": ", ".join(shovels),
            "count": self.count,
        }


def _binary(text: str) -> str:
    """A text as Erlang writes it."""
    return f"<<{json.dumps(text)}>>"
