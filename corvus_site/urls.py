"""The console's addresses. Nothing of the data plane is here."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

admin.site.site_header = "Corvus"
admin.site.site_title = "Corvus"
admin.site.index_title = "Console"
admin.site.site_url = None
admin.site.enable_nav_sidebar = False

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("portal.urls")),
]
