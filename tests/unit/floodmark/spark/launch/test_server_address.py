from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from floodmark.core.errors import ConfigError
from floodmark.spark.launch import command
from floodmark.spark.launch.command import application, job_environment, submit_command
from floodmark.spark.launch.processes import TOKEN_VARIABLE, server_command
from floodmark.spark.launch.target import SparkTarget, target_of

_SECRETS = {"FLOODMARK_SOURCE": '{"password": "s3cret"}'}


def target(master: str, user: str | None = None, token: str | None = None, **extra: Any) -> SparkTarget:
    return target_of("spark_default", master, extra, user, token)


@pytest.mark.parametrize(
    ("made", "url"),
    [
        (target("sc://spark.example"), "sc://spark.example:15002/;use_ssl=false"),
        (target("sc://[::1]:99"), "sc://[::1]:99/;use_ssl=false"),
        (target("spark_connect://h:7", "ann"), "sc://h:7/;use_ssl=false;user_id=ann"),
        (target("sc://h:7/;use_ssl=true;user_id=b%20c"), "sc://h:7/;use_ssl=true;user_id=b%20c"),
        (target("sc://h:7", None, "a;b/c", use_ssl=True), "sc://h:7/;use_ssl=true;token=a%3Bb%2Fc"),
        (target("sc://127.0.0.1:7", None, "t"), "sc://localhost:7/;use_ssl=false;token=t"),
    ],
)
def test_connection_names_a_server(made: SparkTarget, url: str) -> None:
    assert made.server == url
    assert made.has_tls is ("use_ssl=true" in url)


@pytest.mark.parametrize(
    ("master", "token", "extra", "words"),
    [
        ("sc://h/;token=abc", None, {}, "its host has the parameter token. Give a token as the password."),
        ("sc://h", "abc", {}, "its password would be sent in clear. Set its extra use_ssl to true"),
        ("sc://h", None, {"conf": {"spark.executor.memory": "2g"}}, "its extra conf is for spark-submit"),
        ("sc://h", None, {"deploy-mode": "cluster"}, "its extra deploy-mode is for spark-submit"),
        ("sc://h", None, {"use_ssl": "maybe"}, "use_ssl is 'maybe', expected true or false."),
        ("sc://h:port", None, {}, "its host is not sc://HOST:PORT."),
        ("sc://", None, {}, "its host is not sc://HOST:PORT."),
    ],
)
def test_connection_that_names_no_server_for_a_load_is_refused(
    master: str, token: str | None, extra: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        target(master, None, token, **extra)
    assert f"connection spark_default: {words}" in str(caught.value)
    assert "abc" not in caught.value.in_full


def test_token_is_in_the_environment_alone() -> None:
    made = target("sc://localhost", None, "t0ken")
    found = submit_command(made, 7, Path("/etc/pipelines.yaml"))
    assert found[1:] == [str(application()), "--window-id", "7", "--config", "/etc/pipelines.yaml"]
    assert "t0ken" not in " ".join(found)
    assert "t0ken" not in repr(made)
    environment = job_environment(_SECRETS, made)
    assert environment == _SECRETS | {"FLOODMARK_SPARK_REMOTE": made.server}


def test_load_says_which_packages_its_client_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "zstandard" else object())
    with pytest.raises(ConfigError, match=r"needs zstandard\. Install floodmark\[connect\]"):
        submit_command(target("sc://h"), 7, Path("/etc/pipelines.yaml"))


def test_server_on_the_network_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert server_command(SparkTarget(), "127.0.0.1", 1)
    with pytest.raises(ConfigError, match=f"could run programs on this machine. Set {TOKEN_VARIABLE}"):
        server_command(SparkTarget(), "10.0.0.1", 1)
    monkeypatch.setenv(TOKEN_VARIABLE, "t0ken")
    assert "t0ken" not in " ".join(server_command(SparkTarget(), "10.0.0.1", 1))
