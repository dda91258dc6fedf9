"""A save that is refused after the form was right: shown to the operator, never an error page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect


class ShowsRefusals(admin.ModelAdmin):  # type: ignore[type-arg]
    """Admin whose writes go through services; what they refuse is undone whole and said."""

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the form, or save it; the transaction is Django's own around this view."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except ValidationError as refusal:
            for message in refusal.messages:
                self.message_user(request, f"Nothing was saved: {message}", messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
