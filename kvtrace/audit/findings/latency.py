"""Checks on the slow tail and on what a hit saves: length, bytes moved or queueing, as measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvtrace.audit.findings.check import Evidence, Hit, in_ms, known_only, measured
from kvtrace.audit.findings.limits import CONFOUNDED, HIT_HELP, QUEUE_SHARE, TAIL_AUC, TAIL_REQUESTS
from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.record import Quantity
from kvtrace.audit.thresholds import MIN_REQUESTS
from kvtrace.audit.view import Row, count, number, rows_of
from kvtrace.audit.words import counted

CAUSES_TABLE: Final = "latency/tail_causes"
_SPLIT: Final = "latency/tail_split"
_SAVED: Final = "latency/ttft_by_cached_share"
_KINDS: Final = {"length": "length", "bytes_moved": "bytes moved", "queueing": "queueing"}
_TOKENS: Final = 1000
"""The query's unit: ms for so many cached tokens."""


def tail_cause(evidence: Evidence) -> Hit | None:
    """What explains the slow tail, that nothing does, or that the data cannot tell."""
    causes = of_one_group(rows_of(evidence.queries, CAUSES_TABLE))
    if not causes or max(count(row, "tail_requests") or 0 for row in causes) < TAIL_REQUESTS.value:
        return None
    split = next(
        (r for r in rows_of(evidence.queries, _SPLIT) if _group(r) == _group(causes[0])), {}
    )
    by_split = _queue_of_excess(split)
    if by_split:
        kind, sentence = "queueing", by_split
    else:
        kind, sentence = _by_ranks(causes, split)
    known = {str(row.get("kind")) for row in causes}
    missing = [words for name, words in _KINDS.items() if name not in known]
    parts = [f"{_whose(causes[0])}: {sentence}"]
    if missing:
        parts.append(f"These logs do not say, per request: {', '.join(missing)}")
    enough = max(count(row, "requests") or 0 for row in causes) >= MIN_REQUESTS.value
    return Hit(
        severity="warning" if kind in ("queueing", "bytes_moved") else "info",
        confidence="high" if enough and by_split else "medium" if kind else "low",
        message=". ".join(parts),
        evidence=(*_auc_evidence(causes), *_split_evidence(split)),
    )


def _group(row: Row) -> tuple[object, object]:
    return row.get("traffic"), row.get("ttft_at")


def of_one_group(rows: Sequence[Row], *, by: str = "requests") -> list[Row]:
    """Rows of production before benchmark, then of the group with most requests."""
    if not rows:
        return []
    best = min(
        rows,
        key=lambda row: (
            row.get("traffic") != "production",
            -(count(row, by) or 0),
            row.get("ttft_at") != "engine",
        ),
    )
    return [row for row in rows if _group(row) == _group(best)]


def _whose(row: Row) -> str:
    traffic = "" if row.get("traffic") == "production" else " of benchmark traffic"
    side = " as clients saw it" if row.get("ttft_at") == "client" else ""
    tail = count(row, "tail_requests") or 0
    return (
        f"The slowest first tokens{traffic}{side} ({counted(tail, 'request')} above "
        f"{in_ms(number(row, 'tail_from_ms'))} of TTFT, measured)"
    )


def _queue_of_excess(split: Row) -> str:
    """The sentence where the queue is surely most of the excess; empty elsewhere."""
    low, high = number(split, "queue_share_low"), number(split, "queue_share_high")
    tail = count(split, "tail_requests") or 0
    if low is None or high is None or tail < TAIL_REQUESTS.value or low < QUEUE_SHARE.value:
        return ""
    return (
        f"queueing, not length or bytes: of the {in_ms(number(split, 'excess_ms'))} that they take "
        f"longer than the others, {in_ms(number(split, 'excess_queue_ms'))} pass in the queue "
        f"(share {number(split, 'queue_share') or 0.0:.2f}, 95 % {low:.2f} to {high:.2f})"
    )


def _by_ranks(causes: Sequence[Row], split: Row) -> tuple[str, str]:
    """Kind and sentence by the AUC: the kind whose best cause stands above those of the others."""
    best: dict[str, Row] = {}
    queue_high = number(split, "queue_share_high")
    queue_is_small = queue_high is not None and queue_high < QUEUE_SHARE.value
    for row in causes:
        kind = str(row.get("kind"))
        if number(row, "auc_low") is None or (kind == "queueing" and queue_is_small):
            continue
        if kind not in best or (number(row, "auc") or 0.0) > (number(best[kind], "auc") or 0.0):
            best[kind] = row
    said = "; ".join(_auc_words(row) for row in best.values())
    clear = [k for k, row in best.items() if (number(row, "auc_low") or 0.0) >= TAIL_AUC.value]
    if not best:
        return "", "the data cannot tell what they have that the others have not"
    if not clear:
        if all((number(row, "auc_high") or 0.0) < TAIL_AUC.value for row in best.values()):
            return "", f"none of the known causes explains them ({said})"
        return "", f"the data cannot tell, the intervals are too wide ({said})"
    top = max(clear, key=lambda kind: number(best[kind], "auc") or 0.0)
    others = [row for kind, row in best.items() if kind != top]
    if any(
        (number(row, "auc_high") or 0.0) >= (number(best[top], "auc_low") or 0.0) for row in others
    ):
        return "", f"the data cannot tell the causes apart ({said})"
    return top, f"{_KINDS[top]} explains them best ({said})"


def bytes_explain_tail(queries: Mapping[str, ResultOfQuery]) -> tuple[Row, str] | None:
    """The measured cause and its words, where bytes moved explain the slow tail best."""
    causes = of_one_group(rows_of(queries, CAUSES_TABLE))
    if not causes or max(count(row, "tail_requests") or 0 for row in causes) < TAIL_REQUESTS.value:
        return None
    splits = rows_of(queries, _SPLIT)
    split = next((row for row in splits if _group(row) == _group(causes[0])), {})
    if _queue_of_excess(split) or _by_ranks(causes, split)[0] != "bytes_moved":
        return None
    moved = [row for row in causes if row.get("kind") == "bytes_moved"]
    best = max(moved, key=lambda row: number(row, "auc") or 0.0)
    return best, f"{_whose(best)}: {_auc_words(best)}"


def _auc_words(row: Row) -> str:
    return (
        f"a slow request has more {str(row.get('cause')).replace('_', ' ')} than another in "
        f"{_percent(row, 'auc')} of 100 pairs, 95 % {_percent(row, 'auc_low')} to "
        f"{_percent(row, 'auc_high')}"
    )


def _percent(row: Row, column: str) -> str:
    return f"{100 * (number(row, column) or 0.0):.0f}"


def _auc_evidence(causes: Sequence[Row]) -> tuple[Quantity, ...]:
    return known_only(
        *(
            measured(f"auc:{row.get('cause')}", number(row, "auc"), "ratio", CAUSES_TABLE)
            for row in causes
        )
    )


def _split_evidence(split: Row) -> tuple[Quantity, ...]:
    return known_only(
        measured("excess_ms", number(split, "excess_ms"), "ms", _SPLIT),
        measured("queue_share_of_excess", number(split, "queue_share"), "ratio", _SPLIT),
    )


def hits_do_not_help(evidence: Evidence) -> Hit | None:
    """Requests with more cached tokens are not sooner, at equal length and load."""
    rows = of_one_group(
        [row for row in rows_of(evidence.queries, _SAVED) if row.get("prompt_bucket") is None]
    )
    whole = next((row for row in rows if row.get("outcome") == "ttft"), None)
    if whole is None or number(whole, "saved_low_ms") is None:
        return None
    at_most = (
        (number(whole, "saved_high_ms") or 0.0)
        * (number(whole, "mean_cached_tokens") or 0.0)
        / _TOKENS
    )
    limit = HIT_HELP.value * (number(whole, "mean_ms") or 0.0)
    is_later = whole.get("with_hits") == "later"
    if not is_later and (whole.get("with_hits") == "sooner" or at_most >= limit):
        return None
    return Hit(
        severity="warning",
        confidence="medium" if whole.get("is_load_held") else "low",
        message=". ".join(_hit_words(whole, rows, at_most)),
        evidence=known_only(
            measured(
                "saved_ms_per_1000_cached", number(whole, "saved_ms_per_1000_cached"), "ms", _SAVED
            ),
            measured("saved_low_ms", number(whole, "saved_low_ms"), "ms", _SAVED),
            measured("saved_high_ms", number(whole, "saved_high_ms"), "ms", _SAVED),
            measured("requests", count(whole, "requests"), "requests", _SAVED),
        ),
    )


def _hit_words(whole: Row, rows: Sequence[Row], at_most: float) -> list[str]:
    """Sentences: what was found, what happens after the queue, what may mislead."""
    low, high = number(whole, "saved_low_ms") or 0.0, number(whole, "saved_high_ms") or 0.0
    effect = (
        "come with a later first token"
        if whole.get("with_hits") == "later"
        else f"save at most {in_ms(at_most)} of a mean TTFT of {in_ms(number(whole, 'mean_ms'))}"
    )
    parts = [
        f"At equal prompt length hits {effect}: 1 000 cached tokens save "
        f"{number(whole, 'saved_ms_per_1000_cached') or 0.0:.1f} ms, 95 % {low:.1f} to {high:.1f} "
        f"ms ({counted(count(whole, 'requests') or 0, 'request')}, measured)"
    ]
    after = next((row for row in rows if row.get("outcome") == "after_queue"), {})
    if after.get("with_hits") == "sooner":
        parts.append(
            "After the queue they are sooner "
            f"({number(after, 'saved_ms_per_1000_cached') or 0.0:.1f} ms for 1 000 tokens): the "
            "hits save compute, and the queue hides it"
        )
    if not whole.get("is_load_held"):
        parts.append("The load at the arrival is unknown, so it is not held fixed")
    with_queue = number(whole, "cached_queue_correlation")
    if with_queue is not None and abs(with_queue) >= CONFOUNDED.value:
        parts.append(
            f"Hits and queue go together (r = {with_queue:.2f}): busy times may stand behind it"
        )
    return parts
