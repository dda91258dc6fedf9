"""What others read of hosts, settings and versions."""

from __future__ import annotations

from typing import cast

from django.conf import settings
from django.db.models import Max

from proxy.compile import host_document
from proxy.effective import Effective
from proxy.gateway.plan import Site, compile_site
from proxy.gateway.snapshot import GatewaySettings
from proxy.models import ConfigVersion, HostName, KeyGeneration, ProxyHost, SavedSetting
from proxy.names import EVERY_NAME


def configured() -> Effective:
    """Give flags, environment and defaults, without what the console saved."""
    return cast(Effective, settings.CORVUS)


def saved_settings() -> dict[str, str]:
    """Give what the console saved, name → text."""
    return dict(SavedSetting.objects.values_list("name", "value"))


def effective() -> Effective:
    """Give every setting with the value in force.

    A saved value that has become wrong (a newer release, a changed environment) does not stop the
    start: it is left out, and the settings page shows it.
    """
    base, saved = configured(), saved_settings()
    while problems := base.problems(saved):
        wrong = {problem.name for problem in problems}
        saved = {n: t for n, t in saved.items() if n not in wrong} if wrong & saved.keys() else {}
    return base.overlaid(saved)


def origin() -> str:
    """Give the catch-all's origin: `CORVUS_UPSTREAM`, or the demo site while it is empty."""
    values = effective()
    return values.value("CORVUS_UPSTREAM") or f"http://{values.value('CORVUS_DEMO_LISTEN')}"


def site(host_id: int) -> Site:
    """Give a host as it is saved, compiled as a gateway compiles it."""
    host = ProxyHost.objects.prefetch_related("names", "bindings").get(pk=host_id)
    return compile_site(host_document(host), GatewaySettings())


def host_of(name: str) -> ProxyHost | None:
    """Find the host that answers for a name in normal form, as `proxy.gateway.plan.Plan` does."""
    wanted = [name, f"*.{name.partition('.')[2]}", EVERY_NAME]
    found = HostName.objects.filter(name__in=wanted).select_related("host")
    owners = {owner.name: owner.host for owner in found}
    return next((owners[name] for name in wanted if name in owners), None)


def key_generation() -> int:
    """Give the number of the keys that sign now; the first is 1."""
    return KeyGeneration.objects.aggregate(n=Max("number"))["n"] or 1


def newest_version() -> ConfigVersion | None:
    """Give the configuration in force."""
    return ConfigVersion.objects.order_by("-number").first()


def is_behind() -> bool:
    """Tell whether the newest configuration has not reached the store yet."""
    newest = newest_version()
    return newest is not None and newest.delivered_at is None
