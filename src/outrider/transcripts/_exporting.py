"""Owns the forms in which a session leaves: Markdown and HTML for people, JSON for `import_`.

Does not read sessions; how each form looks is in modules of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

from outrider._display import escaped_json
from outrider.errors import OptionsError
from outrider.redaction import DEFAULT
from outrider.transcripts._lines import to_line

if TYPE_CHECKING:
    from outrider.transcripts._values import Bundle
    from outrider.wire import JsonObject

__all__ = ["FORMAT", "VERSION", "ExportFormat", "check_format", "exported"]

ExportFormat: TypeAlias = Literal["markdown", "json", "html"]

FORMAT: Final = "outrider-session"
"""What the JSON form calls itself."""

VERSION: Final = 1


def check_format(form: object) -> ExportFormat:
    """Raises `OptionsError` for one that is not known."""
    if form not in get_args(ExportFormat):
        raise OptionsError(
            f"a session cannot be exported as {form!r}", hint="Give 'markdown', 'json' or 'html'."
        )
    return cast("ExportFormat", form)


def exported(bundle: Bundle, form: ExportFormat = "markdown", *, redact: bool | None = None) -> str:
    """The session as text. Secrets are masked if `redact` is set; by default in all forms but JSON, which
    would not be the same session then."""
    check_format(form)
    if form == "json":
        return _json(bundle, redact=bool(redact))
    from outrider.transcripts._exporting_turns import read

    transcript = read(bundle, redact=redact is not False)
    if form == "html":
        from outrider.transcripts._exporting_html import html

        return html(transcript)
    from outrider.transcripts._exporting_markdown import markdown

    return markdown(transcript)


def _json(bundle: Bundle, *, redact: bool) -> str:
    """One entry on each line: two exports can be compared."""

    def lines(entries: list[JsonObject]) -> str:
        made = [to_line(DEFAULT.mask_json(entry) if redact else entry) for entry in entries]
        return "[\n" + ",\n".join(made) + "\n]" if made else "[]"

    parts = ",\n".join(f"{to_line(subpath)}: {lines(part)}" for subpath, part in bundle.parts.items())
    head = {"format": FORMAT, "version": VERSION, "session_id": bundle.session_id, "project": bundle.project}
    fields = [f"{to_line(name)}: {to_line(value)}" for name, value in head.items()]
    fields += [f'"entries": {lines(bundle.entries)}', f'"parts": {{{parts}}}']
    return escaped_json("{\n" + ",\n".join(fields) + "\n}\n")
