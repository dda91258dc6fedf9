"""Django's settings, once for every process of the control plane: no forks for debugging or tests.

What an operator sets is declared in `corvus_site.setting_list`; here it is turned into
Django's terms.
"""

from __future__ import annotations

import os
from pathlib import Path

from corvus_site import backends, env, logs
from corvus_site.secrets_file import derive, ensure_secret

BASE_DIR = Path(__file__).resolve().parent.parent

CORVUS = env.load(os.environ)
"""Flags, environment and defaults; what the console saved is laid over it by `proxy.queries`."""

DATA_DIR: Path = backends.data_folder(CORVUS.value("CORVUS_DATA_DIR"))
MASTER_SECRET: str = CORVUS.value("CORVUS_SECRET") or ensure_secret(DATA_DIR)
TRUSTED_PROXIES: tuple[str, ...] = CORVUS.value("CORVUS_TRUSTED_PROXIES")
SETUP_TOKEN: str = CORVUS.value("CORVUS_SETUP_TOKEN")
STORE_URL: str = (
    os.environ.get("CORVUS_STORE_URL")  # from the supervisor, which knows where its store is
    or CORVUS.value("CORVUS_REDIS_URL")
    or backends.embedded_store_url(DATA_DIR)
)
_listen = CORVUS.value("CORVUS_CONSOLE_LISTEN")

SECRET_KEY = derive(MASTER_SECRET, "django")
DEBUG = False
ALLOWED_HOSTS = backends.console_hosts(_listen, CORVUS.value("CORVUS_CONSOLE_HOSTS"))

INSTALLED_APPS = [
    "corvus_site",
    "portal",
    "proxy",
    "abuse",
    "queueing",
    "corvus_site.console.ConsoleConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
]

MIDDLEWARE = [
    "corvus_site.middleware.ConsoleHeaders",
    "django.middleware.security.SecurityMiddleware",
    "corvus_site.middleware.StaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "portal.middleware.FirstRun",
]

ROOT_URLCONF = "corvus_site.urls"
ASGI_APPLICATION = "corvus_site.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "portal.context.delivery",
            ],
        },
    },
]

DATABASES = {"default": backends.database(CORVUS.value("DATABASE_URL"), DATA_DIR)}

CACHES = {"default": backends.cache(STORE_URL)}
SESSION_ENGINE = "django.contrib.sessions.backends.cached_db"
CHANNEL_LAYERS = {"default": backends.channel_layer(STORE_URL)}

CELERY_BROKER_URL = CORVUS.value("CORVUS_BROKER_URL") or backends.broker(STORE_URL)
CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": "corvus:celery:"}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_DEFAULT_QUEUE = "corvus"
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}", **options}
    for name, options in (
        ("UserAttributeSimilarityValidator", {}),
        ("MinimumLengthValidator", {"OPTIONS": {"min_length": 12}}),
        ("CommonPasswordValidator", {}),
        ("NumericPasswordValidator", {}),
    )
]
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"

LANGUAGE_CODE = "en"
LANGUAGES = [
    ("en", "English"),
    ("de", "Deutsch"),
    ("fr", "Français"),
    ("es", "Español"),
    ("ja", "日本語"),
    ("ar", "العربية"),
]
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"
FORMAT_MODULE_PATH = ["corvus_site.formats"]

STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False

# The console is HTTPS whenever it is not on loopback, where a Secure cookie would be lost.
_by_https = not (_listen and _listen.is_loopback)
SESSION_COOKIE_NAME = "corvus_console"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _by_https
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = 8 * 3600
CSRF_COOKIE_NAME = "corvus_console_csrf"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
# HTTPS is the listener's matter: on loopback there is none, elsewhere there is nothing else. So no
# redirect, no HSTS for a self-signed certificate, and Secure cookies only where they can work.
SILENCED_SYSTEM_CHECKS = ["security.W004", "security.W008", "security.W012", "security.W016"]
DATA_UPLOAD_MAX_MEMORY_SIZE = 1 << 20
FILE_UPLOAD_MAX_MEMORY_SIZE = 1 << 20

LOGGING_CONFIG = None
logs.configure(CORVUS.value("CORVUS_LOG_FORMAT"), CORVUS.value("CORVUS_LOG_LEVEL"))
