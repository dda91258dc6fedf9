"""Proxy hosts, what the console saved over the settings, published versions, key generations.

Writes lie in `proxy.services`; what a host means to the gateway in `proxy.compile`.
"""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from proxy.gateway.conflicts import LABELS, faults
from proxy.names import clean_allowed_origins, clean_origin, clean_path_list, clean_path_rule
from queueing.config import Problem

PATH_CASES = {
    "sensitive": "Upper and lower case differ (Linux)",
    "insensitive": "Upper and lower case are the same (Windows)",
}


_ONE_A_LINE = "One a line; /* at the end covers all below. "


def _paths(label: str, default: str, help_text: str) -> models.TextField[str, str]:
    return models.TextField(
        label,
        blank=True,
        default=default,
        db_default=default,
        help_text=_ONE_A_LINE + help_text,
    )


class ProxyHost(models.Model):
    """One proxy host: names → one origin, with the rooms that govern its paths."""

    label = models.CharField(max_length=100, help_text="What operators call this host.")
    origin = models.CharField(
        max_length=300,
        help_text="The site behind Corvus: http://host:port or https://host:port, without a path.",
    )
    preserve_host = models.BooleanField(
        "send the visitor's Host header",
        default=True,
        help_text="Otherwise the site sees its own name. Most sites want the visitor's.",
    )
    verify_origin = models.BooleanField(
        "check the site's certificate",
        default=True,
        help_text="For an https:// origin: refuse it when its certificate is not valid for its"
        " name.",
    )
    path_case = models.CharField(
        "paths",
        max_length=12,
        choices=PATH_CASES,
        default="sensitive",
        help_text="How the site reads paths. Decides what a room or a rule covers.",
    )
    bypass = models.TextField(
        "paths that never wait",
        blank=True,
        default="/favicon.ico\n/robots.txt\n/.well-known/acme-challenge/*",
        help_text="One a line; /* at the end covers all below.",
    )
    assets = _paths(
        "assets",
        "",
        "Style sheets, scripts, fonts, images: served to people with a pass, who never wait for"
        " them.",
    )
    public_assets = _paths(
        "public assets",
        "",
        "Assets that need no pass, such as pictures that other sites or e-mails show.",
    )
    streams = _paths(
        "streams",
        "",
        "WebSockets and event streams. A pass is needed; they take no page's slot.",
    )
    ban_paths = _paths(
        "ban paths",
        "",
        "What nobody who means well asks for, such as /.env or /.git/*. Never reaches the site.",
    )
    return_paths = _paths(
        "return paths",
        "",
        "Where another site, such as a bank, sends the visitor back by a form. These are pages.",
    )
    allowed_origins = models.TextField(
        "sites whose scripts may read answers",
        blank=True,
        default="",
        db_default="",
        help_text="One a line, such as https://app.example.org. Their scripts can then read what"
        " Corvus answers when it does not let a request through.",
    )
    session_cookie = models.CharField(
        "the site's session cookie",
        max_length=100,
        blank=True,
        help_text="Its name, such as sessionid. Needed when a new room keeps whoever is inside"
        " now.",
    )
    catch_all = models.BooleanField(
        default=False,
        editable=False,
        help_text="Answers for every name that no other host has; its values are settings.",
    )
    rooms = models.ManyToManyField("queueing.Room", through="RoomBinding", related_name="hosts")

    class Meta:
        ordering = ["label"]
        constraints = [
            models.UniqueConstraint(
                fields=["catch_all"], condition=Q(catch_all=True), name="proxy_host_one_catch_all"
            ),
            models.CheckConstraint(
                name="proxy_host_path_case_known", condition=Q(path_case__in=list(PATH_CASES))
            ),
        ]

    def __str__(self) -> str:
        return self.label

    def clean(self) -> None:
        """Bring origin and paths into their one form; refuse what has none."""
        errors: dict[str, list[str]] = {}
        readers = dict.fromkeys(LABELS, clean_path_list)
        readers |= {"origin": clean_origin, "allowed_origins": clean_allowed_origins}
        for name, read in readers.items():
            try:
                setattr(self, name, read(getattr(self, name)))
            except ValueError as error:
                errors[name] = [str(error)]
        if not errors:
            errors = self._fault_errors()
        if errors:
            raise ValidationError(errors)

    def faults(self) -> list[Problem]:
        """Name what cannot stand in the lists of paths, see `proxy.gateway.conflicts`."""
        lists = {name: getattr(self, name).split() for name in LABELS}
        return faults(lists, insensitive=self.path_case == "insensitive")

    def _fault_errors(self) -> dict[str, list[str]]:
        """Give the faults by the field at which they can be mended.

        The catch-all's tiers are settings, which stand together: what is wrong with them here comes
        of its return paths, or of its case rule.
        """
        found = self.faults()
        own = {f.message for f in found if f.field == "return_paths"}
        errors: dict[str, list[str]] = {}
        for fault in found:
            field = fault.field
            if self.catch_all and field != "return_paths":
                if fault.message in own:
                    continue
                field = "path_case"
            if fault.message not in errors.setdefault(field, []):
                errors[field].append(fault.message)
        return errors


class HostName(models.Model):
    """One name of a proxy host; `*` is every name that no other host has."""

    host = models.ForeignKey(ProxyHost, models.CASCADE, related_name="names")
    name = models.CharField(max_length=253)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["name"], name="host_name_once")]

    def __str__(self) -> str:
        return self.name


class RoomBinding(models.Model):
    """Which of a host's paths a room governs."""

    host = models.ForeignKey(ProxyHost, models.CASCADE, related_name="bindings")
    path = models.CharField(
        max_length=500,
        default="/*",
        help_text="An exact path, or a prefix with /* at its end. The most specific rule counts.",
    )
    room = models.ForeignKey("queueing.Room", models.PROTECT, related_name="bindings")

    class Meta:
        ordering = ["path"]
        constraints = [
            models.UniqueConstraint(fields=["host", "path"], name="room_binding_path_once")
        ]

    def __str__(self) -> str:
        return f"{self.host} {self.path} → {self.room_id}"

    def clean(self) -> None:
        """Bring the path rule into its one form."""
        try:
            self.path = clean_path_rule(self.path)
        except ValueError as error:
            raise ValidationError({"path": str(error)}) from None


class SavedSetting(models.Model):
    """A setting's value that was saved in the console; it counts above flag and environment."""

    name = models.CharField(max_length=64)
    value = models.TextField(blank=True)
    author = models.CharField(max_length=150)
    saved_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = "setting"
        constraints = [models.UniqueConstraint(fields=["name"], name="saved_setting_once")]

    def __str__(self) -> str:
        return self.name


class ConfigVersion(models.Model):
    """One published configuration, whole."""

    number = models.PositiveBigIntegerField(unique=True)
    document = models.TextField(editable=False)
    digest = models.CharField(max_length=64, editable=False)
    pages = models.CharField(max_length=64, editable=False)
    author = models.CharField(max_length=150)
    note = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-number"]
        verbose_name = "published version"

    def __str__(self) -> str:
        return f"version {self.number}"


class PageBundle(models.Model):
    """The rendered visitor pages that versions name by digest."""

    digest = models.CharField(max_length=64, unique=True)
    content = models.BinaryField()

    def __str__(self) -> str:
        return self.digest


class KeyGeneration(models.Model):
    """One generation of signing keys; the newest signs, it and the one before verify."""

    number = models.PositiveIntegerField(unique=True)
    author = models.CharField(max_length=150)
    rotated_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-number"]
        verbose_name = "key generation"

    def __str__(self) -> str:
        return f"generation {self.number}"
