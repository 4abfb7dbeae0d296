"""The table of processes, and Dagster's own files, as this release of Dagster reads them."""

from __future__ import annotations

import json
import shutil
import socket
import stat
from pathlib import Path

import pytest
import yaml

from cerniq_pipeline.dev import product
from cerniq_pipeline.dev.dagster_api import LOCATION
from cerniq_pipeline.dev.embedded import EmbeddedPostgres
from cerniq_pipeline.dev.environment import Environment
from cerniq_pipeline.errors import SetupError

PROJECT = Path(__file__).parents[2]


def an_environment(data_dir: Path, *, mode: str = "sandbox") -> Environment:
    return Environment(
        root=data_dir,
        data_dir=data_dir,
        mode=mode,
        values={"CERNIQ_SANDBOX_URL": "http://127.0.0.1:8900"},
        servers=(),
        owns_dagster_storage=True,
        webhook_secrets={
            "CERNIQ_TIMELINESAI_WEBHOOK_TOKEN": "a-token",
            "CERNIQ_META_APP_SECRET": "new-secret, old-secret",
            "CERNIQ_META_VERIFY_TOKEN": "a-word",
        },
    )


def test_busy_ports_are_replaced_by_the_next_free_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CERNIQ_SANDBOX_URL", "CERNIQ_PUBLIC_URL"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as one, socket.socket() as other, socket.socket() as third:
        for listener in (one, other, third):
            listener.bind(("127.0.0.1", 0))
            listener.listen()
        monkeypatch.setattr(product, "SANDBOX_PORT", one.getsockname()[1])
        monkeypatch.setattr(product, "DAGSTER_PORT", other.getsockname()[1])
        monkeypatch.setattr(product, "WEB_PORT", third.getsockname()[1])
        ports = product.choose_ports(tmp_path)
        assert ports.sandbox > one.getsockname()[1]
        assert ports.dagster > other.getsockname()[1]
        assert ports.web > third.getsockname()[1]
        assert len({ports.sandbox, ports.dagster, ports.web}) == 3


@pytest.mark.parametrize(
    ("name", "which"), [("CERNIQ_SANDBOX_URL", "sandbox"), ("CERNIQ_PUBLIC_URL", "web")]
)
def test_an_address_of_this_machine_that_was_set_is_kept_or_refused_but_never_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, which: str
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        listener.listen()
        with pytest.raises(SetupError, match=f"port {port}, which is busy"):
            product.choose_ports(tmp_path)
    assert getattr(product.choose_ports(tmp_path), which) == port


def test_a_public_address_elsewhere_says_nothing_about_our_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CERNIQ_PUBLIC_URL", "https://hooks.example.test:8443")
    assert product.choose_ports(tmp_path).web != 8443


def test_live_mode_has_no_sandbox(tmp_path: Path) -> None:
    ports = product.Ports(dagster=3000, sandbox=8900, web=8000)

    def names(mode: str) -> list[str]:
        table = product.processes(an_environment(tmp_path, mode=mode), ports, say=lambda _: None)
        return [service.name for service in table]

    assert names("sandbox") == ["sandbox", *names("live")]


def test_the_sandbox_knows_whom_to_call_and_nobody_else_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Environment, "phone_numbers", lambda self: [])
    ports = product.Ports(dagster=3000, sandbox=8900, web=8001)
    table = product.processes(an_environment(tmp_path), ports, say=lambda _: None)
    sandbox, web = table[:2]
    assert sandbox.before_first_start is not None
    sandbox.before_first_start()
    told = Path(sandbox.command[sandbox.command.index("--webhooks") + 1])
    assert json.loads(told.read_text()) == {
        "timelinesai": {"url": "http://127.0.0.1:8001/webhooks/timelinesai", "token": "a-token"},
        "meta": {"url": "http://127.0.0.1:8001/webhooks/whatsapp", "app_secret": "new-secret"},
    }
    assert stat.S_IMODE(told.stat().st_mode) == 0o600
    assert web.command[1:] == ("web", "--host", "127.0.0.1", "--port", "8001")
    assert web.address == "http://127.0.0.1:8001"
    told_to_all = product.child_environment(an_environment(tmp_path))
    assert not {"a-token", "a-word"} & set(told_to_all.values())


def test_an_ordinary_stop_lets_nobody_report_a_run_as_failed(tmp_path: Path) -> None:
    """Ctrl-C painted nineteen runs red: the daemon and the code server told of their own end."""
    table = product.processes(an_environment(tmp_path), product.Ports(1, 2, 3), say=lambda _: None)
    turns = {service.name: service.stop_turn for service in table}
    # Who starts runs, then those who are runs, then who is called by them.
    assert turns["dagster-daemon"] < turns["dagster-code"] < turns["web"] == turns["sandbox"]
    assert [service.name for service in table if service.killed_at_stop] == ["dagster-code"]


def test_both_workspaces_name_the_same_location(tmp_path: Path) -> None:
    product.processes(an_environment(tmp_path), product.Ports(1, 2, 3), say=lambda _: None)
    generated = yaml.safe_load((tmp_path / "workspace.yaml").read_text())
    plain = yaml.safe_load((PROJECT / "workspace.yaml").read_text())
    assert generated["load_from"][0]["grpc_server"]["location_name"] == LOCATION
    assert plain["load_from"][0]["python_module"]["location_name"] == LOCATION
    assert plain["load_from"][0]["python_module"]["module_name"] == product.DEFINITIONS


def test_dagster_accepts_its_settings_and_writes_events_to_postgres(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: EmbeddedPostgres
) -> None:
    import logging

    import dagster as dg
    from dagster._core.instance.ref import InstanceRef

    @dg.op
    def work() -> None:
        logging.getLogger("cerniq.test").info("seen below")

    @dg.job(executor_def=dg.in_process_executor)
    def tiny() -> None:
        work()

    postgres.create_database("dagster_test")
    monkeypatch.setenv(
        "CERNIQ_DAGSTER_DATABASE_URL", postgres.url("dagster_test", driver="psycopg2")
    )
    shutil.copy(PROJECT / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(tmp_path))) as instance:
        queue = instance.get_concurrency_config().run_queue_config
        assert queue is not None
        per_phone = {"key": "cerniq/phone", "value": {"applyLimitPerUniqueValue": True}, "limit": 1}
        assert per_phone in queue.tag_concurrency_limits
        assert not instance.run_retries_enabled
        assert instance.run_monitoring_enabled

        result = tiny.execute_in_process(instance=instance)

        assert result.success
        entries = instance.all_logs(result.run_id)
        assert "seen below" in [entry.user_message for entry in entries]
        assert "STEP_SUCCESS" in [
            entry.dagster_event.event_type_value for entry in entries if entry.dagster_event
        ]
