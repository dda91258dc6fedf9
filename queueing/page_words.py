"""Every word of the visitors' pages, in English, marked for Django's catalogues.

The builder calls these functions under each language. A `{name}` in a sentence is filled while a
visitor waits, so translations keep it. Texts are short, B1, and promise nothing that is not so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.utils.translation import gettext as _
from django.utils.translation import ngettext


def plurals() -> Mapping[str, Callable[[int], str]]:
    """Give the sentences that depend on a number."""
    return {
        "ahead": lambda n: ngettext(
            "{count} person is ahead of you.", "{count} people are ahead of you.", n
        ),
    }


def line_states() -> Mapping[str, tuple[str, str, str]]:
    """Give title, heading and text of the states that the live page can move between."""
    return {
        "waiting": (
            _("Waiting"),
            _("You are in line"),
            _(
                "Many people want to visit this site right now. You are let in automatically when"
                " it is your turn."
            ),
        ),
        "parked": (
            _("Waiting"),
            _("Welcome back"),
            _("You were away for a while. Your place was kept, and you are back in line."),
        ),
        "paused": (
            _("Paused"),
            _("The line is paused"),
            _("Nobody is let in at the moment. Your place is kept until the line moves again."),
        ),
        "prequeue": (
            _("Not open yet"),
            _("You are early"),
            _("The site is not open yet. When it opens, you take part automatically."),
        ),
        "hold": (
            _("Restoring the line"),
            _("We are restoring the line"),
            _(
                "A technical fault stopped the line. Nobody is let in until the places are back. "
                "Please stay on this page."
            ),
        ),
        "granted": (
            _("Your turn"),
            _("It is your turn"),
            _("A place inside is reserved for you."),
        ),
        "missed": (
            _("Turn missed"),
            _("You missed your turn"),
            _(
                "We did not hear from you for too long, so your place expired. You can join again"
                " at the end of the line."
            ),
        ),
        "reset": (
            _("New line"),
            _("The line was started again"),
            _("Your old number is no longer valid. You can join the new line now."),
        ),
        "left": (
            _("You left"),
            _("You left the line"),
            _(
                "Your place was given up. You can close this page, or join again at the end of "
                "the line."
            ),
        ),
    }


def closed_states() -> Mapping[str, tuple[str, str, str]]:
    """Give title, heading and text of the states of a room in which there is no place to show."""
    return {
        "full": (
            _("Line full"),
            _("The line is full"),
            _("So many people are waiting that nobody else can join right now."),
        ),
        "closed": (
            _("Closed"),
            _("The line is closed"),
            _("Nobody new can join the line. People who already have a place keep it."),
        ),
        "rejected": (
            _("No entry"),
            _("No entry at the moment"),
            _("Nobody new is let in right now. If you have a place in the line, it is kept."),
        ),
        "cookies": (
            _("Cookies needed"),
            _("Cookies are needed"),
            _(
                "Your browser did not keep our cookie. We need one cookie to remember your place."
                " Allow cookies for this site, or open this page in your usual browser, and try"
                " again."
            ),
        ),
        "cookies_broken": (
            _("Place cannot be kept"),
            _("Your place cannot be kept"),
            _(
                "This site is set up in such a way that your browser cannot store its cookie. This"
                " is not your fault, and trying again will not help. Please tell the operator."
            ),
        ),
        "busy": (
            _("Very busy"),
            _("The waiting room is very busy"),
            _("We could not look up your place just now. If you have one, it is kept."),
        ),
        "store_down": (
            _("Waiting room not available"),
            _("The waiting room is not available"),
            _(
                "Nobody can join or move up until it is back. If you have a place in the line, it"
                " is kept."
            ),
        ),
        "limited": (
            _("Too many requests"),
            _("Please wait a moment"),
            _("Too many requests came from your connection in a short time."),
        ),
        "not_sent": (
            _("Not sent"),
            _("This was not sent"),
            _(
                "Your form or action did not reach the site. Nothing was changed. Wait for your "
                "turn, then send it again."
            ),
        ),
        "unsent_form": (
            _("Form not sent"),
            _("Your form was not sent"),
            _(
                "The site is very busy right now. Nothing was changed, and it is safe to send it"
                " again: go back in your browser, wait a moment, and send it once more."
            ),
        ),
        "shared": (
            _("In use elsewhere"),
            _("Your access is in use on another network"),
            _(
                "Two networks use the same access at this moment. If you have just changed your"
                " connection, you are let in again in a moment. If not, join the line with a place"
                " of your own."
            ),
        ),
        "repost": (
            _("One moment"),
            _("One moment"),
            _(
                "Another site has sent you back here. If the page does not go on by itself, press"
                " the button."
            ),
        ),
        "banned": (
            _("Access paused"),
            _("Your access is paused"),
            _("Unusual activity came from your connection. Access opens again by itself."),
        ),
        "blocked": (
            _("Access blocked"),
            _("Your access is blocked"),
            _(
                "Unusual activity came from your connection. If you think that this is a mistake,"
                " contact the operator and give the number below."
            ),
        ),
    }


def error_states() -> Mapping[str, tuple[str, str, str]]:
    """Give title, heading and text of the gateway's error pages."""
    return {
        "bad_request": (
            _("Bad request"),
            _("We cannot read this request"),
            _("Check the address, or go back and try again."),
        ),
        "not_found": (
            _("No site here"),
            _("There is no site at this address"),
            _("Check the address for typing errors."),
        ),
        "too_large": (
            _("Too large"),
            _("This is too large"),
            _("What you sent is larger than this site accepts. Nothing was saved."),
        ),
        "bad_gateway": (
            _("No answer"),
            _("The site does not answer"),
            _("The site behind this gateway cannot be reached right now. This is not your fault."),
        ),
        "gateway_timeout": (
            _("Too slow"),
            _("The site takes too long"),
            _(
                "The site behind this gateway did not answer in time. We do not know whether your"
                " last action was done; check before you repeat it."
            ),
        ),
        "server_error": (
            _("Error"),
            _("Something went wrong"),
            _("The fault is on our side. Please try again in a moment."),
        ),
    }


def live_words() -> Mapping[str, str]:
    """Give the sentences that the server and the page's script both fill in."""
    return {
        "first": _("You are first in line."),
        "about": _("About {time}"),
        "likely": _("very likely less than {time}"),
        "both": _("{about}, {likely}"),
        "unknown": _("not known yet"),
        "moment": _("less than a minute"),
        "keep": _("You may lock your phone or switch apps. Your place is kept for {time}."),
        "claim": _("You have {time} to enter."),
        "since": _("Your place expired {time} ago."),
        "again": _("We try again automatically in {time}."),
        "opens": _("Access opens again in {time}."),
        "every": _("This page reloads every {time}."),
        "returned": _(
            "Your place moved back because people who had been away returned to their older"
            " numbers."
        ),
        "rank": _("Your place moved back because people with priority joined the line."),
        "operator": _("Your place moved back because the operator changed the line."),
        "paid": _("Your place moved back because somebody paid to go to the front."),
    }


def script_words() -> Mapping[str, str]:
    """Give the sentences that only the page's script says."""
    return {
        "place": _("Your place in line: {count}."),
        "wait": _("Estimated wait: {time}."),
        "soon": _("You are taken in automatically in a moment."),
        "warn": _("Your reserved place expires soon. Enter now, or take more time."),
        "busy": _("We could not look up your place just now. If you have one, it is kept."),
        "offline": _("No connection at the moment. We keep trying; you need not reload."),
        "stale": _("This page may be an old copy. Reload it to see your real place."),
        "no_notice": _("Your browser does not allow notifications from this site."),
    }


def price_words() -> Mapping[str, str]:
    """Give the words of the card that sells a place in front; `{price}` is filled later."""
    return {
        "buy": _("Skip the line for {price}"),
        "buy_hint": _(
            "You can pay to go to the front of the line. People who paid before you stay ahead of"
            " you. The price holds for 10 minutes."
        ),
    }


def helper_words() -> Mapping[str, str]:
    """Give what the helper script of single-page applications says; it formats nothing itself."""
    return {
        "title": _("You are in line"),
        "place": _("Your place in line: {count}."),
        "wait": _("This page goes on by itself when it is your turn."),
        "ends": _("Your time on this site ends at {time}."),
        "more": _("Stay longer"),
    }


def labels() -> Mapping[str, str]:
    """Give the words of buttons, labels and fixed notes."""
    return {
        "place": _("Your place in line"),
        "eta": _("Estimated wait"),
        "ticket": _("Your number"),
        "people": _("People waiting"),
        "message": _("Message from the operator"),
        "check": _("Check my place"),
        "leave": _("Leave the line"),
        "leave_hint": _("If you leave, you lose your place."),
        "enter": _("Enter now"),
        "extend": _("I need more time"),
        "rejoin": _("Join the line again"),
        "retry": _("Try again"),
        "join": _("Join the line"),
        "go_on": _("Continue"),
        "elsewhere": _("Open in a new window"),
        "options": _("Settings"),
        "auto": _("Take me in automatically"),
        "auto_retry": _("Try again automatically"),
        "sound": _("Play a sound when it is my turn"),
        "notify": _("Show a notification when it is my turn"),
        "pause": _("Pause the numbers on this page"),
        "languages": _("Language"),
        "unsafe": _("This was not sent"),
        "unsafe_text": _(
            "Your form or action did not reach the site, and nothing was changed. When you are "
            "inside, send it again."
        ),
        "stopped": _("This page does not reload by itself."),
        "slower": _("Reload less often"),
        "stop": _("Stop reloading"),
        "start": _("Reload automatically"),
        "incident": _("Number for the operator"),
    }
