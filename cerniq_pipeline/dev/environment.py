"""Everything that must be there before the product runs: servers, databases, settings, tables.

Real servers are used when somebody names them, in the environment or in their own lines of `.env`;
otherwise this machine runs its own. What was decided is written to `.env`, where every `cerniq` and
`dagster` command finds it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from cerniq_pipeline.dev import envfile
from cerniq_pipeline.dev.embedded import EmbeddedPostgres, EmbeddedRedis, EmbeddedServer
from cerniq_pipeline.errors import SetupError
from cerniq_pipeline.providers import signing

DATABASE = "CERNIQ_DATABASE_URL"
DAGSTER_DATABASE = "CERNIQ_DAGSTER_DATABASE_URL"
REDIS = "CERNIQ_REDIS_URL"
SECRET = "CERNIQ_SECRET_KEY"  # noqa: S105 - the name of one
DATA_DIR = "CERNIQ_DATA_DIR"
SANDBOX = "CERNIQ_SANDBOX_URL"
PUBLIC = "CERNIQ_PUBLIC_URL"
TIMELINESAI_TOKEN = "CERNIQ_TIMELINESAI_WEBHOOK_TOKEN"  # noqa: S105 - the name of one
TIMELINESAI_SECRET = "CERNIQ_TIMELINESAI_WEBHOOK_SECRET"  # noqa: S105 - the name of one
META_SECRET = "CERNIQ_META_APP_SECRET"  # noqa: S105 - the name of one
META_WORD = "CERNIQ_META_VERIFY_TOKEN"
HOME = "DAGSTER_HOME"

DEFAULT_SANDBOX_URL = "http://127.0.0.1:8900"
DEFAULT_WEB_URL = "http://127.0.0.1:8000"

_WEBHOOK_SECRETS = (TIMELINESAI_TOKEN, META_SECRET, META_WORD)
_MANAGED = (
    *(DATABASE, DAGSTER_DATABASE, REDIS, SECRET, DATA_DIR, SANDBOX, PUBLIC, HOME),
    *_WEBHOOK_SECRETS,
)
_PROJECT_FILES = ("dagster.yaml", "workspace.yaml")


@dataclass(frozen=True)
class Environment:
    """What was decided: the values for every process, and the servers that are ours."""

    root: Path
    data_dir: Path
    mode: str
    values: Mapping[str, str]
    servers: tuple[EmbeddedServer, ...]
    owns_dagster_storage: bool
    """Whether no other machine can have runs in Dagster's storage."""
    notes: tuple[str, ...] = ()
    webhook_secrets: Mapping[str, str] = field(default_factory=dict)
    """In `.env` alone and not in `values`: what a process has in its environment cannot change,
    and these must be rotated while it runs."""

    def phone_numbers(self) -> list[tuple[str, str]]:
        """Every phone of every tenant with its provider."""
        from cerniq_pipeline.store import phones
        from cerniq_pipeline.store.database import connect

        engine = connect(_rendered(_parsed(self.values[DATABASE]), driver="psycopg"))
        try:
            with engine.begin() as conn:
                return phones.numbers(conn)
        finally:
            engine.dispose()

    @property
    def is_sandbox(self) -> bool:
        """Whether every provider is played on this machine."""
        return self.mode == "sandbox"


def given_values(root: Path) -> dict[str, str]:
    """What people said, in the environment or in their own lines of `.env`.

    Dagster lets `.env` win over the environment, our settings do the opposite: a name with two
    values would send Dagster's runs to one database and `cerniq` to another.
    """
    lines = envfile.outside_block(envfile.read(root / ".env"))
    environment = {name: value for name, value in os.environ.items() if name.startswith("CERNIQ_")}
    for name in _MANAGED:
        if name in lines and environment.get(name, lines[name]) != lines[name]:
            raise SetupError(
                f"{name} has one value in the environment and another in .env: keep one of them"
            )
    return {name: value for name, value in (lines | environment).items() if value}


def data_folder(root: Path) -> Path:
    """Where this project keeps its data, as an absolute path."""
    return Path(os.path.realpath(root / given_values(root).get(DATA_DIR, ".cerniq")))


def embedded_servers(data_dir: Path) -> tuple[EmbeddedPostgres, EmbeddedRedis]:
    """The two servers that live in this data folder, running or not."""
    return EmbeddedPostgres(data_dir / "postgres"), EmbeddedRedis(data_dir / "redis")


def prepare(
    root: Path, *, sandbox_url: str | None = None, web_url: str | None = None
) -> Environment:
    """Have servers, databases, `.env`, tables and (in sandbox mode) demo data; safe to repeat."""
    for name in _PROJECT_FILES:
        if not (root / name).exists():
            raise SetupError(f"no {name} in {root}: run this in the project's folder")
    given = given_values(root)
    text = envfile.read(root / ".env")
    written = envfile.in_block(text)
    data_dir = data_folder(root)
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)  # it holds people's numbers

    postgres, redis = embedded_servers(data_dir)
    servers: list[EmbeddedServer] = []
    notes: list[str] = []
    mode = given.get("CERNIQ_MODE", "sandbox")
    values = {
        DATA_DIR: str(data_dir),
        HOME: given.get(HOME) or str(_dagster_home(root, data_dir)),
        SECRET: _secret(data_dir, mode, given=given.get(SECRET), written=written.get(SECRET)),
        SANDBOX: given.get(SANDBOX) or sandbox_url or written.get(SANDBOX) or DEFAULT_SANDBOX_URL,
        PUBLIC: given.get(PUBLIC) or web_url or written.get(PUBLIC) or DEFAULT_WEB_URL,
    }
    if DATABASE in given:
        values[DATABASE] = given[DATABASE]
        values[DAGSTER_DATABASE] = _dagster_storage_beside(given[DATABASE], notes)
    else:
        postgres.start()
        servers.append(postgres)
        for name in ("cerniq", "cerniq_dagster"):
            postgres.create_database(name)
        values[DATABASE] = postgres.url("cerniq")
        values[DAGSTER_DATABASE] = postgres.url("cerniq_dagster", driver="psycopg2")
    if DAGSTER_DATABASE in given:
        values[DAGSTER_DATABASE] = _with_psycopg2(given[DAGSTER_DATABASE])
    if REDIS in given:
        values[REDIS] = given[REDIS]
        _check_redis(given[REDIS])
    else:
        redis.start()
        servers.append(redis)
        values[REDIS] = redis.url()

    # A line of yours stays the only one of its name.
    yours = envfile.outside_block(text)
    webhook_secrets = _webhook_secrets(written | given, make_missing=mode == "sandbox")
    all_values = values | webhook_secrets
    ours = {n: all_values[n] for n in _MANAGED if n in all_values and n not in yours}
    envfile.write(root / ".env", envfile.with_block(text, ours))

    environment = Environment(
        root=root,
        data_dir=data_dir,
        mode=mode,
        values=values,
        servers=tuple(servers),
        owns_dagster_storage=not {DATABASE, DAGSTER_DATABASE} & given.keys(),
        notes=tuple(notes),
        webhook_secrets=webhook_secrets,
    )
    _fill_database(environment)
    return environment


def _webhook_secrets(known: Mapping[str, str], *, make_missing: bool) -> dict[str, str]:
    """By what the providers' webhooks are believed; in the sandbox we play both sides."""
    made = {name: secrets.token_urlsafe(32) for name in _WEBHOOK_SECRETS if make_missing}
    wanted = (*_WEBHOOK_SECRETS, TIMELINESAI_SECRET)
    return made | {name: known[name] for name in wanted if known.get(name)}


def _secret(data_dir: Path, mode: str, *, given: str | None, written: str | None) -> str:
    """The key of the suppression hashes: made once, then never another.

    Kept beside the data too. With a new key nobody who said "stop" would be recognised, and a
    deleted `.env` must not do that.
    """
    kept = data_dir / "secret_key"
    stored = kept.read_text().strip() if kept.exists() else None
    candidates = {key for key in (given, written, stored) if key}
    if len(candidates) > 1:
        raise SetupError(
            f"{SECRET} differs between the environment, .env and {kept}: people who opted out are "
            "known by the old key only; put that one back everywhere"
        )
    secret = candidates.pop() if candidates else secrets.token_urlsafe(32)
    if stored is None:
        if mode == "live" and signing.is_weak(secret.encode()):
            raise SetupError(f"{SECRET} can be guessed: {signing.STRONG}")
        envfile.write(kept, f"{secret}\n")
    return secret


def _dagster_home(root: Path, data_dir: Path) -> Path:
    """A folder for what Dagster leaves behind, governed by the project's `dagster.yaml`."""
    home = data_dir / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    link = home / "dagster.yaml"
    source = root.resolve() / "dagster.yaml"
    if not (link.is_symlink() and link.readlink() == source):
        link.unlink(missing_ok=True)
        link.symlink_to(source)
    return home


def _dagster_storage_beside(database_url: str, notes: list[str]) -> str:
    """Where Dagster keeps its own storage on a server that somebody named.

    Its own database if that may be made, otherwise its own schema: Dagster's table names
    (`runs`, `jobs`, `alembic_version`) are too common to share a schema with anything.
    """
    import psycopg  # only when there is a server to ask
    from psycopg import sql

    url = _parsed(database_url)
    name = f"{url.database}_dagster"
    libpq = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(libpq, autocommit=True, connect_timeout=10) as conn:
            known = conn.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
            if known is None:
                try:
                    statement = sql.SQL("CREATE DATABASE {}")
                    conn.execute(statement.format(sql.Identifier(name)))
                except psycopg.errors.InsufficientPrivilege:
                    conn.execute("CREATE SCHEMA IF NOT EXISTS dagster")
                    notes.append(
                        f"may not create the database {name}: Dagster uses the schema `dagster` of "
                        f"{url.database} instead; set {DAGSTER_DATABASE} to choose another place"
                    )
                    own_schema = {"options": "-csearch_path=dagster"}
                    return _rendered(url.update_query_dict(own_schema), driver="psycopg2")
    except psycopg.Error as error:
        raise SetupError(f"{DATABASE} cannot be used: {_first_line(error)}") from error
    return _rendered(url.set(database=name), driver="psycopg2")


def _with_psycopg2(dagster_url: str) -> str:
    # A bare `postgresql://` means psycopg 3 to SQLAlchemy 2.1, and Dagster then fails at its
    # first event.
    if not dagster_url.startswith("postgresql+psycopg2://"):
        raise SetupError(f"{DAGSTER_DATABASE} must begin with postgresql+psycopg2://")
    return dagster_url


def _parsed(database_url: str) -> URL:
    try:
        url = make_url(database_url)
    except ArgumentError as error:
        raise SetupError(f"{DATABASE} is not an address of a database") from error
    if url.get_backend_name() != "postgresql" or not url.database:
        raise SetupError(f"{DATABASE} must look like postgresql://user:password@host/database")
    return url


def _rendered(url: URL, *, driver: str) -> str:
    return url.set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)


def _check_redis(redis_url: str) -> None:
    import redis  # only when there is a server to ask

    try:
        with redis.Redis.from_url(redis_url, socket_connect_timeout=5, socket_timeout=5) as client:
            client.ping()
    except (redis.RedisError, ValueError) as error:
        raise SetupError(f"{REDIS} cannot be used: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _fill_database(environment: Environment) -> None:
    from cerniq_pipeline.services.demo_data import seed_demo
    from cerniq_pipeline.store.database import connect
    from cerniq_pipeline.store.migrations import upgrade

    database_url = _rendered(_parsed(environment.values[DATABASE]), driver="psycopg")
    upgrade(database_url)
    if environment.is_sandbox:
        engine = connect(database_url)
        try:
            seed_demo(engine)
        finally:
            engine.dispose()
