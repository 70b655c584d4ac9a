"""Results of Prometheus' HTTP API: range queries (matrix) and instant queries (vector) as JSON.

Shapes read from the API of Prometheus 2.x and 3.x and its kin (Thanos, Mimir, VictoriaMetrics),
and from VictoriaMetrics' `/api/v1/export` (one series a line, times in ms). Values are texts, NaN
and Inf among them; a series lacks points where it was not scraped. Names become metrics, and
counters what they gained, as in scrapes (`ingest/prometheus`); the step is the window. Results of
functions carry no name and cannot be told apart, so they are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, Row, SampleRow
from kvtrace.ingest.prometheus import EXPORTERS, SUPPLIED
from kvtrace.ingest.prometheus.exposition import stamp_ns
from kvtrace.ingest.prometheus.scrapes import ScrapeBook
from kvtrace.ingest.prometheus.series import Series
from kvtrace.ingest.prometheus.seriesbook import SeriesBook
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, json_record_rows, keys_of
from kvtrace.units import MIB

_NAME: Final = "__name__"
_HEAD_CHARS: Final = 4096
_MAX_LABELS: Final = 256
_MAX_VALUE_CHARS: Final = 40
_MAX_TIMES: Final = 100_000

_Point = tuple[int | float, str]


class _Result(msgspec.Struct, gc=False):
    metric: dict[str, str] = {}
    value: _Point | None = None
    values: list[_Point] | None = None


class _Data(msgspec.Struct, gc=False):
    kind: str = msgspec.field(default="", name="resultType")
    result: msgspec.Raw = msgspec.Raw()


class _Response(msgspec.Struct, gc=False):
    status: str | None = None
    data: _Data | None = None
    metric: dict[str, str] | None = None
    values: list[int | float | None] | None = None
    timestamps: list[int | float] | None = None


_DECODER: Final = msgspec.json.Decoder(_Response)
_RESULTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_RESULT: Final = msgspec.json.Decoder(_Result)
_WITH_SERIES: Final = ("matrix", "vector")


class _ResponseFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._book = ScrapeBook()
        self._series = SeriesBook(context)
        self._times: dict[int | float, int | None] = {}
        self._left_out = self._nameless = 0

    def take(self, record: Record) -> list[Row] | Ignored:
        """Put the points of one response away; rows come when all have been read.

        Raises:
            msgspec.DecodeError: not JSON, or not the shape of a response.
        """
        response = decode_json(_DECODER, record.data)
        if response.data is None and response.metric is not None:
            used = self._exported(record, response)
            return [] if used else Ignored("metric_not_used")
        if response.status != "success":
            if response.status != "error":
                raise msgspec.ValidationError("neither `status` nor a series")
            return Ignored("query_failed")
        if response.data is None or response.data.kind not in _WITH_SERIES:
            return Ignored("no_series")
        results = _RESULTS.decode(response.data.result)
        for raw in results:
            _RESULT.decode(raw)  # a response with a damaged series is rejected whole
        used = 0
        for found in map(_RESULT.decode, results):  # one at a time: a day of points is large
            points = found.values or []
            if found.value is not None:
                points = [*points, found.value]
            used += self._add(record, found.metric, points)
        return [] if used else Ignored("metric_not_used")

    def _exported(self, record: Record, response: _Response) -> int:
        """One series of VictoriaMetrics' export."""
        values, stamps = response.values or [], response.timestamps or []
        if len(values) != len(stamps):
            raise msgspec.ValidationError("`values` and `timestamps` have different lengths")
        points = [
            (stamp, repr(value))
            for stamp, value in zip(stamps, values, strict=True)
            if value is not None
        ]
        return self._add(record, response.metric or {}, points)

    def _add(self, record: Record, metric: Mapping[str, str], points: Iterable[_Point]) -> int:
        """The number of points of one series that count."""
        name = metric.get(_NAME)
        if name is None or len(metric) > _MAX_LABELS:
            self._nameless += 1
            return 0
        labels = tuple(sorted((key, text) for key, text in metric.items() if key != _NAME))
        series = self._series.understand(name, labels)
        if isinstance(series, str):
            return 0
        return sum(self._add_point(record, series, *point) for point in points)

    def _add_point(self, record: Record, series: Series, stamp: float, text: str) -> bool:
        time_ns = self._time(stamp)
        try:
            value = self._series.value(series, _number(text))
        except ValueError:
            self._left_out += 1
            return False
        if time_ns is None or value is None:
            self._left_out += time_ns is None
            return False
        return self._book.add_stamped(series, value, time_ns, record.offset, record.line)

    def _time(self, stamp: float) -> int | None:
        """Nanoseconds of a stamp; all series share the few of a query."""
        if stamp not in self._times:
            if len(self._times) >= _MAX_TIMES:
                self._times.clear()
            self._times[stamp] = stamp_ns(repr(stamp))
        return self._times[stamp]

    def rows(self) -> Iterator[SampleRow]:
        """The rows of all responses, and what a reader of them must know."""
        if self._left_out:
            self._context.note(
                "values_left_out",
                f"Points left out because of a time or a value that cannot be: {self._left_out:,}.",
            )
        if self._nameless:
            self._context.note(
                "series_without_name",
                f"Series without a name, as results of functions (rate, sum): {self._nameless:,}."
                " Query the counters themselves, kvtrace forms the rates.",
            )
        return self._series.rows(self._book.finish())


def _number(text: str) -> float:
    """The number of a value's text, NaN and Inf included.

    Raises:
        ValueError: it is none.
    """
    if len(text) > _MAX_VALUE_CHARS or not text.isascii() or "_" in text:
        raise ValueError("`value` is no number")
    return float(text)


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _ResponseFile(context)
    yield from json_record_rows(records, context.tally, file.take)
    yield from file.rows()


def _sniff(head: Head) -> Guess | None:
    ours = sum(map(_is_response, head.json_objects))
    if ours and 2 * ours >= len(head.json_objects):
        return Guess(0.95, "results of Prometheus' query API (status, resultType)")
    exported = sum(
        {"metric", "values", "timestamps"} <= keys_of(item) for item in head.json_objects
    )
    if exported and 2 * exported >= len(head.json_objects):
        return Guess(0.95, "series as VictoriaMetrics exports them (metric, values, timestamps)")
    start = head.text[:_HEAD_CHARS]
    names = ('"resultType"', '"result"', '"metric"')
    if not ours and all(name in start for name in names):
        return Guess(0.9, "a long result of Prometheus' query API (resultType, metric)")
    return None


def _is_response(item: dict[str, object]) -> bool:
    return "status" in item and {"resultType", "result"} <= keys_of(item.get("data"))


FORMATS: tuple[Format, ...] = (
    Format(
        name="prometheus_api",
        title="Prometheus query results (JSON of query_range and query)",
        framing="json",
        best_grade="C",
        supplies=SUPPLIED,
        missing={
            "requests": "request logs of the engine (vLLM: --enable-log-requests; SGLang:"
            " --export-metrics-to-file; Dynamo: DYN_REQUEST_TRACE=1)",
            "reuse": "block hashes: vLLM --kv-events-config, LMCache --lookup-hash-log-dir, Dynamo"
            " DYN_REQUEST_TRACE=1",
            "block_events": "vLLM --kv-cache-metrics, and its kv_block_* series in the query",
            "tier_split": "vLLM 0.33 (`prompt_tokens_cached_by_source`), SGLang 0.5.10 or newer"
            " with --enable-metrics",
        },
        versions=f"Prometheus 2.x and 3.x HTTP API, VictoriaMetrics export; names of {EXPORTERS}",
        sniff=_sniff,
        read=_read,
        enable_hint="curl -G http://PROMETHEUS:9090/api/v1/query_range --data-urlencode"
        " 'query={__name__=~\"vllm:.*|sglang:.*|lmcache:.*|DCGM_FI_PROF_.*\"}'"
        " -d start=EPOCH -d end=EPOCH -d step=15 > metrics.json"
        " (plain series, not rate() or sum(): those carry no name)",
        max_record_bytes=512 * MIB,
    ),
)
