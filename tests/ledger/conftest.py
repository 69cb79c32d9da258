"""The official clients leave sockets open when a server ends a connection."""

from __future__ import annotations

from tests.official_sockets import no_socket_of_an_official_client_outlives_its_file

__all__ = ["no_socket_of_an_official_client_outlives_its_file"]
