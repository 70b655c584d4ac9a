"""The report as one offline HTML file under a strict content security policy.

Nothing that came from a log can act: templates escape every value, data stands in JSON blocks, and
only the three scripts and the one style sheet whose digests the policy names can run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from kvtrace.audit.record import AuditRecord, Cell
from kvtrace.report.bilingual import merge_languages
from kvtrace.report.format import (
    Scale,
    exact_value,
    format_in,
    format_interval,
    format_value,
    safe_text,
)
from kvtrace.report.headings import heading
from kvtrace.report.localise import localised
from kvtrace.report.sections import GLOSSARY, SECTIONS, page_view
from kvtrace.report.texts import LANGS, Lang, load_texts, read_asset
from kvtrace.report.view import slug

if TYPE_CHECKING:
    from jinja2 import Environment

HTML_LANG: Final[Mapping[Lang, str]] = {"en": "en", "zh": "zh-Hans"}
MAX_HTML_BYTES: Final = 4_000_000
_WORDS_FOR_SCRIPT: Final = ("to_light", "to_dark", "copied", "not_copied")


def render_html(record: AuditRecord, *, lang: Lang) -> str:
    """The whole page in one language, at most 4 MB; the same record gives the same text.

    Encode it as UTF-8. Where tables are large, the page shows fewer rows and says so.
    """
    ours = localised(record, lang)
    return _small_enough(lambda rows: _render(ours, lang=lang, row_limit=rows))


def render_bilingual(record: AuditRecord, *, lang: Lang) -> str:
    """The page of `render_html` with a switch to the other language; `lang` is what it opens in."""
    records = {one: localised(record, one) for one in LANGS}
    return _small_enough(lambda rows: _render_both(records, lang=lang, row_limit=rows))


def _small_enough(render: Callable[[int], str]) -> str:
    """The page with the most rows that is no larger than it may be."""
    for rows in _ROW_LIMITS[:-1]:
        html = render(rows)
        if len(html.encode("utf-8")) <= MAX_HTML_BYTES:
            return html
    return render(_ROW_LIMITS[-1])


_ROW_LIMITS: Final = (200, 60, 15)
"""Most rows of a table, tried in this order until the page is small enough."""


def _render_both(records: Mapping[Lang, AuditRecord], *, lang: Lang, row_limit: int) -> str:
    ours, other = (
        _render(records[one], lang=one, row_limit=row_limit)
        for one in sorted(LANGS, key=lambda one: one != lang)
    )
    page, words = merge_languages(ours, other)
    block = f'<script type="application/json" id="other">{json_block(words)}</script>\n'
    return page.replace(_WORDS_BLOCK, f"{block}{_WORDS_BLOCK}", 1)


_WORDS_BLOCK: Final = '<script type="application/json" id="words">'
"""Before it the words of the other language go."""


def _render(record: AuditRecord, *, lang: Lang, row_limit: int) -> str:
    from markupsafe import Markup

    texts = load_texts(lang)
    style, bundle, what_if, script = (read_asset(name) for name in _INLINE_ASSETS)
    words = {name: texts(f"script.{name}") for name in _WORDS_FOR_SCRIPT}
    page = _environment().get_template("report.html.j2")
    return page.render(
        record=record,
        page=page_view(record, texts),
        row_limit=row_limit,
        t=texts,
        lang=HTML_LANG[lang],
        csp=content_security_policy(scripts=(bundle, what_if, script), style=style),
        style=Markup(style),  # noqa: S704 - our own files; the policy names their digests
        bundle=Markup(bundle),  # noqa: S704
        what_if=Markup(what_if),  # noqa: S704
        script=Markup(script),  # noqa: S704
        words=json_block(json.dumps(words, sort_keys=True)),
        sections=SECTIONS,
        glossary=GLOSSARY,
    )


_INLINE_ASSETS: Final = ("report.css", "plotly-cartesian.min.js", "what_if.js", "report.js")


def content_security_policy(*, scripts: tuple[str, ...], style: str) -> str:
    """The policy that lets exactly these inline texts run and nothing be fetched.

    plotly.js sets style attributes on what it draws, and adds one empty style element, to which it
    gives its rules as objects; the digest of the empty text is for that.
    """
    allowed = " ".join(_digest(script) for script in scripts)
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {allowed}",
            f"style-src {_digest(style)} {_digest('')}",
            "style-src-attr 'unsafe-inline'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def json_block(text: str) -> str:
    """JSON that may stand inside a script element: no tag, comment or line separator in it."""
    from markupsafe import Markup

    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - no markup is left in it


def marked(text: str) -> str:
    """Escaped text in which `backticks` become code."""
    from markupsafe import Markup, escape

    parts = safe_text(text, limit=2_000).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    pieces = (f"<code>{escape(p)}</code>" if i % 2 else str(escape(p)) for i, p in enumerate(parts))
    return Markup("".join(pieces))  # noqa: S704 - every piece is escaped


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("kvtrace.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["safe_text"] = _safe
    environment.filters["marked"] = marked
    environment.filters["json_block"] = json_block
    environment.filters["slug"] = slug
    environment.globals["heading"] = heading
    environment.globals["exact"] = exact_value
    environment.globals["fmt"] = _fmt
    environment.globals["fmt_in"] = _fmt_in
    environment.globals["fmt_range"] = format_interval
    return environment


def _safe(value: object) -> str:
    return safe_text(str(value))


def _fmt(value: Cell, unit: str = "", name: str = "") -> str | None:
    return format_value(value, unit, name=name)


def _fmt_in(value: Cell, scale: Scale | None, unit: str) -> str | None:
    """`value` in the unit of its column, else in its own."""
    return format_value(value, unit) if scale is None else format_in(value, scale)
