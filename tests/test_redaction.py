"""A secret is removed from a text in whatever spelling it comes, and everything else stays."""

from __future__ import annotations

import base64
import io
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from urllib.parse import quote, urlsplit

import pytest

from airflow_gobblin.errors import GobblinError, SourceError, StoreError
from airflow_gobblin.redaction import (
    WITHHELD,
    RedactingStream,
    Redactor,
    is_sensitive,
    redacted_output,
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
    """The four-character pieces of a secret, without marks, that a text still has."""
    plain = {secret[n : n + 4] for n in range(len(secret) - 3)}
    return sorted(piece for piece in plain if piece.isalnum() and piece in text)


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("secret", SECRETS)
def test_every_spelling_is_taken_out_whole(secret: str, spell: Callable[[str], str]) -> None:
    redactor = Redactor([URI.format(quote(secret, safe=""))])
    spelled = spell(secret)
    shown = redactor.redact(SURROUNDINGS.format(spelled))
    assert shown.startswith("before "), shown
    assert shown.endswith(" after"), shown
    assert "***" in shown
    around = shown.replace(base64.b64encode(b"xxx").decode(), "")
    assert len(around) <= len(SURROUNDINGS.format(URI.format("***"))) + 30, shown
    assert not pieces_left(shown, secret)


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
    for text in (key, repr(key), json.dumps(json.dumps(key)), "hkiG9w0BAQEFAASC"):  # whole, or the line that a log has
        assert "hkiG" not in redactor.redact(text)
        assert "MIIEv" not in redactor.redact(text)
    assert secrets_of("sqlite:////data/shop.db") == secrets_of("postgresql://reader@h/d?sslmode=require") == set()


@pytest.mark.parametrize(
    ("extra", "secret"),
    [
        ({"credential": "client-7:kanari-9fQ2"}, "kanari-9fQ2"),
        ({"header.Authorization": "Bearer kanari-9fQ2"}, "kanari-9fQ2"),
        ({"uri": "postgresql+psycopg://reader:kanari-9fQ2@catalog.example/lake"}, "kanari-9fQ2"),
        ({"url": "https://kanari-9fQ2@registry.example"}, "kanari-9fQ2"),
        ({"connection_string": "AccountName=acme;AccountKey=kanari+9f/Q2==;EndpointSuffix=x"}, "kanari+9f/Q2=="),
        ({"sasl.jaas.config": "PlainLoginModule required username='u' password='kanari 9f Q2';"}, "kanari 9f Q2"),
        ({"storage_options": {"aws_secret_access_key": "kanari-9fQ2"}}, "kanari-9fQ2"),
        ({"private_key_passphrase": "kanari-9fQ2"}, "kanari-9fQ2"),
        ({"sasl.oauthbearer.client.secret": "kanari-9fQ2"}, "kanari-9fQ2"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_secret_that_a_setting_has_beside_other_things_is_known_alone(extra: dict[str, object], secret: str) -> None:
    redactor = Redactor([f"iceberg://catalog.example:8181/?__extra__={quote(json.dumps(extra), safe='')}"])
    assert redactor.redact(f"client_secret={quote(secret)}") == "client_secret=***"
    assert redactor.redact(f"refused: {secret!r}") in ("refused: '***'", "refused: ***")
    known = "no table at https://catalog.example:8181, of reader, client-7, AccountName=acme"
    assert redactor.redact(known) == known


def test_a_hint_shows_how_a_connection_is_named() -> None:
    hint = "Write it as 'http://connection@host/folder'"
    assert Redactor().redact(hint) == hint
    assert Redactor().redact("http://connection2@host/folder") == "http://***@host/folder"


ILL_FORMED = (
    "pass/word",
    "pass?word",
    "pass#word",
    "pass@word",
    "long/with?all#marks@together",
    "1234/secret",
    "1234?secret",
    "[bracket]secret",
    "pass?word=other",
    "with blank/secret",
)


@pytest.mark.parametrize("password", ILL_FORMED)
@pytest.mark.parametrize(
    "form", ["postgresql://reader:{}@db.example/shop", "reader:{}@db.example/shop", "s3://AK:{}@/?a=b"]
)
def test_of_a_uri_whose_password_is_not_quoted_no_part_is_shown(form: str, password: str) -> None:
    """A parser of such a URI takes parts of the password for host, port, path, setting or fragment."""
    uri = form.format(password)
    redactor = Redactor([uri])
    texts = [uri, password, quote(password, safe="")]
    with suppress(ValueError):
        parts = urlsplit(uri)
        texts += [*parts, str(parts.hostname), f"could not translate host name {parts.netloc.rpartition('@')[2]!r}"]
        texts += [str(error) for error in errors_of(lambda: parts.port)]
    texts += [str(error) for error in errors_of(lambda: urlsplit(uri))]
    left = {text: found for text in texts if (found := pieces_left(redactor.redact(text), password))}
    assert not left


def errors_of(act: Callable[[], object]) -> list[Exception]:
    try:
        act()
    except ValueError as error:
        return [error]
    return []


def test_what_airflow_makes_of_such_a_uri_is_known_too() -> None:
    """It takes the user for the host, the beginning of the password for the port, and quotes the rest."""
    for uri in ("postgresql://reader:1234/secret%40db.example%2Fshop", "postgresql://reader:secret"):
        assert Redactor([uri]).redact("no schema 'secret' there") == "no schema '***' there"


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://db.example:5432/shop",
        "postgresql://[::1]:5432/shop",
        "postgresql://one.example:5432,two.example:5432/shop?user=a@b.example",
        "postgresql://reader@db.example:5432/shop",
        "sqlite:////data/a@b/shop.db",
    ],
)
def test_a_uri_without_a_password_has_no_secret(uri: str) -> None:
    assert secrets_of(uri) - {"a@b.example"} == set()


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
    with_note = SourceError(operation="plan", subject="dataset 'a'", cause=deep)
    with_note.add_note("Before that: canary-9fQ2")
    assert (
        redactor.without_secrets(with_note, "open", "it").with_notes
        == "can't plan dataset 'a': ValueError: *** Before that: ***"
    )


class Silent(Exception):
    """Show nothing by `str`, and everything by its arguments."""

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


def test_a_line_that_another_thread_begins_meanwhile_cuts_none() -> None:
    """A secret that comes in parts would pass in parts."""
    out = io.StringIO()
    stream = RedactingStream(out, Redactor(secrets=["canary-9fQ2"]))
    begun, go_on = threading.Event(), threading.Event()

    def begin() -> None:
        stream.write("it is can")
        begun.set()
        assert go_on.wait(10)
        stream.write("ary-9fQ2\n")

    thread = threading.Thread(target=begin)
    thread.start()
    assert begun.wait(10)
    stream.write("meanwhile\n")
    go_on.set()
    thread.join()
    assert out.getvalue() == "meanwhile\nit is ***\n"


def test_many_threads_print_whole_lines() -> None:
    out = io.StringIO()
    redactor = Redactor(secrets=["canary-9fQ2"])
    with redirect_stdout(out), redacted_output(redactor), ThreadPoolExecutor(8) as pool:
        [*pool.map(lambda n: print(*["canary-9fQ2"] * 5, f"of {n}"), range(200))]
        sys.stdout.write("the end")
    lines = out.getvalue().splitlines()
    assert sorted(lines) == sorted([*(f"*** *** *** *** *** of {n}" for n in range(200)), "the end"])


def test_what_any_thread_has_begun_is_written_at_the_end() -> None:
    out = io.StringIO()
    with redirect_stdout(out), redacted_output(Redactor(secrets=["canary-9fQ2"])):
        thread = threading.Thread(target=lambda: print("canary-9fQ2", end=""))
        thread.start()
        thread.join()
    assert out.getvalue() == "***"


def test_bytes_are_looked_at_as_text_is() -> None:
    out = io.StringIO()
    stream = RedactingStream(out, Redactor(secrets=["canäry-9fQ2"]))
    for byte in "it is canäry-9fQ2 \N{SNOWMAN}\n".encode() + b"\xff and \xe2":
        assert stream.buffer.write(bytes([byte])) == 1
    assert out.getvalue() == "it is *** \N{SNOWMAN}\n"
    stream.buffer.flush()
    assert out.getvalue() == "it is *** \N{SNOWMAN}\n\\xff and \\xe2"
    assert stream.buffer.writable()


def test_what_is_wrapped_is_looked_at_with_the_next_line() -> None:
    out = io.StringIO()
    stream = RedactingStream(out, Redactor(secrets=["canary-9fQ2-canary"]))
    wrapped = base64.encodebytes(b"x" * 47 + b"canary-9fQ2-canary").decode()
    for line in (f"see {wrapped}", "and so on\n"):
        stream.write(line)
    assert "Y2FuYXJ5" not in out.getvalue()
    assert out.getvalue().endswith("\nand so on\n")
    assert "***" in out.getvalue()


@pytest.mark.slow
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
def test_a_setting_that_names_the_place_of_a_secret_is_none(setting: str) -> None:
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
    """A task's time is over: a frame in a folder named like a common password shows nothing of it."""

    class TimeoutOfTask(BaseException):
        pass

    redactor = Redactor(["postgresql://airflow:" + password + "@db/airflow"])
    with pytest.raises(TimeoutOfTask), redactor.guarding("plan", "dataset 'a'"):
        exec(compile("raise error", "/opt/airflow/dags/shop.py", "exec"), {"error": TimeoutOfTask("after 60 s")})
    with pytest.raises(GobblinError, match=r"\*\*\*"), redactor.guarding("plan", "dataset 'a'"):
        raise TimeoutOfTask(f"{password} refused")
