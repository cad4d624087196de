"""Requests that a host with a user in front of it makes: logins, remote control, feedback, the browser.

Few of their answers are documented; what is known is in `_answers_session`.
"""

from __future__ import annotations

from outrider.wire._value import Json
from outrider.wire.control._answers import Acknowledged, Undocumented
from outrider.wire.control._answers_session import AuthenticationUrls, LoggedIn, RemoteControlled
from outrider.wire.control._requests import OpenRequest, Request


class ClaudeAuthenticate(Request[AuthenticationUrls], tag="claude_authenticate", rename="camel"):
    """Begins a login to the account."""

    answer = AuthenticationUrls

    login_with_claude_ai: bool
    """With a subscription; else with an API account."""
    console_profile: str | None = None


class ClaudeOauthCallback(Request[Undocumented], tag="claude_oauth_callback", rename="camel"):
    """Hands over the code that the login page showed."""

    answer = Undocumented

    authorization_code: str
    state: str


class ClaudeOauthWaitForCompletion(Request[LoggedIn], tag="claude_oauth_wait_for_completion"):
    """Waits until the login has ended: give it time."""

    answer = LoggedIn


class RemoteControl(Request[RemoteControlled], tag="remote_control"):
    """Opens the session to the user's other devices, or closes it."""

    answer = RemoteControlled

    enabled: bool
    name: str | None = None
    reattach_session_id: str | None = None
    keep_session_on_exit: bool | None = None
    work_secret: str | None = None


class MessageRated(Request[Acknowledged], tag="message_rated", rename="camel"):
    """Tells how the user rated a message."""

    message_uuid: str
    sentiment: str | None = None
    surface: str | None = None
    cleared: bool | None = None
    """The rating was taken back."""


class SubmitFeedback(Request[Undocumented], tag="submit_feedback"):
    """Sends what the user wrote about the product."""

    answer = Undocumented

    description: str
    surface: str | None = None
    draft_id: str | None = None
    type: str | None = None
    title: str | None = None
    area: str | None = None
    attach_transcript: bool | None = None
    save_locally: bool | None = None


class SubmitSurveyFeedback(OpenRequest[Undocumented], tag="submit_survey_feedback"):
    """Sends the answers to a survey."""

    answer = Undocumented


class UltrareviewLaunch(Request[Undocumented], tag="ultrareview_launch"):
    """Starts a review in the cloud."""

    answer = Undocumented

    args: Json = None
    confirm: bool | None = None


class SetChromeBrowserHints(OpenRequest[Undocumented], tag="set_chrome_browser_hints"):
    """Tells which browsers there are."""

    answer = Undocumented


class GetChromeDialog(Request[Undocumented], tag="get_chrome_dialog"):
    """Asks for what the browser dialog shows."""

    answer = Undocumented


class GetChromeBrowsers(Request[Undocumented], tag="get_chrome_browsers"):
    """Asks which browsers are connected."""

    answer = Undocumented


class SelectChromeBrowser(Request[Undocumented], tag="select_chrome_browser"):
    """Chooses the browser to work in."""

    answer = Undocumented

    device_id: str
