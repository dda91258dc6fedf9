"""Addresses of the console's own pages."""

from __future__ import annotations

from django.urls import path

from portal import views

app_name = "portal"
urlpatterns = [
    path("", views.home, name="home"),
    path("healthz", views.healthz, name="healthz"),
    path("first-run/", views.first_run, name="first-run"),
]
