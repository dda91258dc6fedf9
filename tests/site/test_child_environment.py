"""Which secrets reach which child of the supervisor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from corvus_site import env
from corvus_site.supervisor import child_environment
from corvus_site.supervisor.child_environment import GATEWAY_SECRETS
from corvus_site.supervisor.data_folder import DataFolder

OTHERS = {
    "CORVUS_SETUP_TOKEN": "the operator's setup token",
    "DATABASE_URL": "postgres://u:pw@db/x",
}
PAYMENTS = {
    "CORVUS_ADMIN_TOKEN": "the operator's admin token",
    "CORVUS_PROMOTE_SECRET": "the payment flow's secret of 32 characters",
    "CORVUS_STRIPE_SECRET": "whsec_of_the_webhook",
}


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    (tmp_path / "run").mkdir()
    return DataFolder(path=tmp_path, run=tmp_path / "run", lasting=True, lock=-1)


def handed_over(
    folder: DataFolder, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Give a gateway's environment when the operator's is `given`."""
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    effective = env.load(given)
    environ = child_environment.for_child(folder, effective, {})
    assert child_environment.for_stranger(environ).keys().isdisjoint(given)
    return child_environment.for_gateway(environ, effective)


def test_a_gateway_learns_the_secrets_of_operators_and_payments_and_no_other(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = handed_over(folder, PAYMENTS | OTHERS, monkeypatch)
    assert {name: own.get(name) for name in PAYMENTS} == PAYMENTS
    assert tuple(PAYMENTS) == GATEWAY_SECRETS
    assert own.keys().isdisjoint(OTHERS)


def test_a_secret_from_a_file_reaches_the_gateway_too(
    folder: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {}
    for name, value in PAYMENTS.items():
        (tmp_path / name).write_text(value + "\n")
        given[f"{name}_FILE"] = str(tmp_path / name)
    own = handed_over(folder, given, monkeypatch)
    assert {name: own.get(name) for name in PAYMENTS} == PAYMENTS


def test_the_gateway_reads_what_the_supervisor_hands_over(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from corvus_site.gateway_asgi import environment; e = environment();"
        " print(e.admin_token, e.promote_secret, e.stripe_secret, sep='|')"
    )
    own = handed_over(folder, PAYMENTS, monkeypatch)
    done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True)
    assert done.stdout.strip().split("|") == list(PAYMENTS.values()), done.stderr


def test_without_secrets_a_gateway_has_none(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert handed_over(folder, {}, monkeypatch).keys().isdisjoint(PAYMENTS)
