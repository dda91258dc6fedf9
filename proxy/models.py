"""Proxy hosts, what the console saved over the settings, published versions, key generations.

Writes lie in `proxy.services`; what a host means to the gateway in `proxy.compile`.
"""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from proxy.names import clean_bypass, clean_origin, clean_path_rule

PATH_CASES = {
    "sensitive": "Upper and lower case differ (Linux)",
    "insensitive": "Upper and lower case are the same (Windows)",
}


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
        errors: dict[str, str] = {}
        for name, read in (("origin", clean_origin), ("bypass", clean_bypass)):
            try:
                setattr(self, name, read(getattr(self, name)))
            except ValueError as error:
                errors[name] = str(error)
        if errors:
            raise ValidationError(errors)


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
