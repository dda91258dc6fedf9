"""The console's addresses. Nothing of the data plane is here."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from portal.forms import SignInForm

admin.site.login_form = SignInForm  # here, because forms need the models that apps load

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("portal.urls")),
]
