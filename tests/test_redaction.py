"""A secret is taken out of a text in whatever spelling it comes, and what is no secret stays."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest

from airflow_gobblin.errors import GobblinError, SourceError, StoreError
from airflow_gobblin.redaction import (
    WITHHELD,
    RedactingStream,
    Redactor,
    is_sensitive,
    secrets_of,
    shows_password,
)
from tests.spellings import SPELLINGS

SECRETS = (
    "p@ss/w'ö\"rd \\ %+&",
    "kan@ri/9%f1+nch=zwitschert",
    "пароль-😀 и всё",
    "back\\slash\\\\\\'quote'''",
    "tab\there",
)
URI = "postgresql://reader:{}@db.example/shop"
SURROUNDINGS = "before {} after"


def pieces_left(text: str, secret: str) -> list[str]:
    """What four characters of a secret in a row, without marks, a text still has of it."""
    plain = {secret[n : n + 4] for n in range(len(secret) - 3)}
    return sorted(piece for piece in plain if piece.isalnum() and piece in text)


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("secret", SECRETS)
def test_every_spelling_is_taken_out_whole(secret: str, spell: Callable[[str], str]) -> None:
    redactor = Redactor([URI.format(quote(secret, safe=""))])
    spelled = spell(secret)
    told = redactor.redact(SURROUNDINGS.format(spelled))
    assert told.startswith("before "), told
    assert told.endswith(" after"), told
    assert "***" in told
    assert len(told) <= len(SURROUNDINGS.format(URI.format("***"))) + 30, told
    assert not pieces_left(told, secret)


@pytest.mark.parametrize(
    "text",
    [
        "can't plan dataset 'main.orders': SourceError: no table. See 'p%20q', \\u0041 and &amp;",
        "postgresql://db.example:5432/shop",
        "Traceback (most recent call last):",
        "0123456789abcdef" * 8,
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    redactor = Redactor([URI.format(quote(secret, safe="")) for secret in SECRETS])
    assert redactor.redact(text) == text


@pytest.mark.parametrize("secret", ["a", "pw1", "%", "''''", "ö"])
def test_a_text_that_may_show_a_very_short_secret_is_withheld(secret: str) -> None:
    redactor = Redactor([URI.format(quote(secret, safe=""))])
    assert redactor.redact(f"the password is {secret}") == WITHHELD
    assert redactor.redact(f"password={quote(secret, safe='')}") in (WITHHELD, "password=***")
    assert redactor.redact("nothing to see") == "nothing to see"


def test_of_extras_all_is_secret_that_is_not_known_to_be_shown() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----\n"
    extra = {
        "region_name": "eu-central-1",
        "endpoint_url": "https://s3.example",
        "aws_session_token": "FwoGZXIvYXdz",
        "house_rule": "unknown-setting",
        "pin": 7,
        "sas_token": "sv1",
        "verify": "false",
        "keyfile_dict": json.dumps({"type": "service_account", "project_id": "acme-1", "private_key": key}),
    }
    found = secrets_of(f"aws://AKIA1234:wJalrXUt@/?__extra__={quote(json.dumps(extra), safe='')}")
    assert found == {"wJalrXUt", "FwoGZXIvYXdz", "unknown-setting", "sv1", key}
    redactor = Redactor(secrets=found - {"sv1"})
    for told in (key, repr(key), json.dumps(json.dumps(key)), "hkiG9w0BAQEFAASC"):  # whole, or the line that a log has
        assert "hkiG" not in redactor.redact(told)
        assert "MIIEv" not in redactor.redact(told)
    assert secrets_of("sqlite:////data/shop.db") == secrets_of("postgresql://reader@h/d?sslmode=require") == set()


def test_an_error_is_looked_through_with_all_that_led_to_it() -> None:
    redactor = Redactor(secrets=["canary-9fQ2"])
    deep, noted, grouped, hidden = (
        ValueError("canary-9fQ2"),
        KeyError(1),
        ExceptionGroup("g", [OSError("canary-9fQ2")]),
        Silent(),
    )
    noted.add_note("with canary-9fQ2")
    for first in (deep, noted, grouped, hidden):
        error = StoreError(operation="open", subject="a journal", cause="no answer")
        error.__cause__ = first
        assert redactor.shows_secret(error)
        clean = redactor.without_secrets(error, "open", "it")
        assert type(clean) is StoreError
        assert not redactor.shows_secret(clean)
    plain = SourceError(operation="plan", subject="dataset 'a'", cause=ValueError("no"))
    assert redactor.without_secrets(plain, "open", "it") is plain
    told = SourceError(operation="plan", subject="dataset 'a'", cause=deep)
    told.add_note("Before that: canary-9fQ2")
    assert (
        redactor.without_secrets(told, "open", "it").with_notes
        == "can't plan dataset 'a': ValueError: *** Before that: ***"
    )


class Silent(Exception):
    """Tells nothing by `str`, and all by its arguments."""

    def __init__(self) -> None:
        super().__init__("canary-9fQ2")

    def __str__(self) -> str:
        return "silent"


def test_what_is_printed_in_parts_is_looked_at_line_by_line() -> None:
    out = io.StringIO()
    stream = RedactingStream(out, Redactor(secrets=["canary-9fQ2"]))
    for part in ("it is can", "ary-9f", "Q2\nand ", "done"):
        stream.write(part)
    assert out.getvalue() == "it is ***\n"
    stream.flush()
    assert out.getvalue() == "it is ***\nand done"


@pytest.mark.parametrize(
    "text", ["'" * 20_000, "\\" * 20_000, "\\'" * 10_000, "%25" * 10_000, "?" * 20_000, "p" * 20_000, "://" * 10_000]
)
def test_no_text_takes_long(text: str) -> None:
    redactor = Redactor(secrets=[*SECRETS, "p" * 60 + "q", "''quoted", "%%%%p", "\\\\p&q", "  blanks"])
    started = time.process_time()
    redactor.redact(text)
    shows_password(text)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "setting",
    [
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.ssl.keyPassword",
        "spark.authenticate.secret",
        "spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net",
        "spark.hadoop.javax.jdo.option.ConnectionPassword",
        "spark.kubernetes.authenticate.submission.oauthToken",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.PGPASSWORD",
        "sslpassword",
    ],
)
def test_a_setting_of_a_secret_is_known_by_its_name(setting: str) -> None:
    assert is_sensitive(setting)


@pytest.mark.parametrize(
    "setting",
    [
        "spark.authenticate.secret.file",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "spark.hadoop.hadoop.security.credential.provider.path",
        "spark.kubernetes.authenticate.oauthTokenFile",
        "spark.kubernetes.executor.secretKeyRef.AWS_KEY",
        "spark.sql.shuffle.partitions",
        "spark.redaction.regex",
    ],
)
def test_a_setting_that_says_where_a_secret_is_is_none(setting: str) -> None:
    assert not is_sensitive(setting)


@pytest.mark.parametrize(
    ("text", "shows"),
    [
        ("postgresql://reader:pw@db.example/shop", True),
        ("see postgresql://reader:p/w@db.example/shop", True),
        ("jdbc:postgresql://db.example/shop?user=u&password=pw", True),
        ("-Xmx1g -Djavax.net.ssl.trustStorePassword=changeit", True),
        ("http://proxy.example:8080/path@x", False),
        ("s3://connection@bucket/prefix", False),
        ("spark://a:7077,b:7077", False),
        ("a password: none", False),
        ("-Dfile.encoding=UTF-8", False),
    ],
)
def test_a_password_in_a_text_is_known(text: str, shows: bool) -> None:
    assert shows_password(text) is shows


@pytest.mark.parametrize("password", ["airflow", "raise", "Timeout"])
def test_an_interrupt_is_not_taken_for_an_error_since_its_traceback_names_files_and_code(password: str) -> None:
    """A task's time is over: that a frame is in a folder named like a common password shows nothing of it."""

    class TimeoutOfTask(BaseException):
        pass

    redactor = Redactor(["postgresql://airflow:" + password + "@db/airflow"])
    with pytest.raises(TimeoutOfTask), redactor.guarding("plan", "dataset 'a'"):
        exec(compile("raise error", "/opt/airflow/dags/shop.py", "exec"), {"error": TimeoutOfTask("after 60 s")})
    with pytest.raises(GobblinError, match=r"\*\*\*"), redactor.guarding("plan", "dataset 'a'"):
        raise TimeoutOfTask(f"{password} refused")
