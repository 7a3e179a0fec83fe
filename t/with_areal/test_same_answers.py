"""The same request to AReaL's own RPC server and to a Muster worker: the same answer."""

from collections.abc import Iterator
from typing import Any

import areal_rig
import muster
import pytest
import requests


class Both:
    """AReaL's server and ours, asked the same."""

    def __init__(self, theirs: str, ours: str) -> None:
        self.urls = (theirs, ours)

    def ask(self, method: str, path: str, **request: Any) -> list[requests.Response]:
        return [
            requests.request(method, url + path, timeout=60, **request)
            for url in self.urls
        ]

    def same(self, method: str, path: str, **request: Any) -> Any:
        """The answer of both."""
        theirs, ours = self.ask(method, path, **request)
        assert (ours.status_code, ours.json()) == (theirs.status_code, theirs.json())
        return ours.json()


@pytest.fixture(scope="module")
def both(session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("areal")
    with areal_rig.rpc_server(folder) as (theirs, _):
        with pytest.warns(UserWarning, match="http_open"):
            one = muster.Cluster("actor", areal_rig.Engine, http_open=True)
        found = Both(theirs, one.http_urls[0])
        make = {"engine": "areal_rig.Engine", "engine_name": "default"}
        requests.post(f"{theirs}/create_engine", json=make, timeout=60)
        yield found
        one.destroy()


def test_health(both: Both) -> None:
    assert both.same("GET", "/health")["engines"] == ["default"]


def test_a_call(both: Both) -> None:
    body = {"method": "add", "engine_name": "default", "args": [3]}
    assert both.same("POST", "/call", json=body)["result"] == 3
