"""Where LiteLLM keeps the counts and the outcome of a call: its metadata and what stands beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kvtrace.ingest.usage import read_usage
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, nested

COUNTS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")
"""Counts of the record itself; its prompt includes Anthropic's reads and writes."""
_EMPTY: Final = (b"", b"null", b'""', b'"null"', b'"{}"')
_ZEROS: Final = (0, "0")
_NO_OWNER: Final = "default_user_id"
"""The user of the proxy's own key."""


class _WithUsage(msgspec.Struct, gc=False):
    """hidden_params or the response: of either only the usage is looked at."""

    usage_object: msgspec.Raw = NO_VALUE
    usage: msgspec.Raw = NO_VALUE


class _Error(msgspec.Struct, gc=False):
    error_code: object = None


class Metadata(msgspec.Struct, gc=False):
    """What is looked at of the metadata of a call."""

    user_api_key_hash: object = None
    user_api_key_team_id: object = None
    user_api_key_end_user_id: object = None
    user_api_key_user_id: object = None
    usage_object: msgspec.Raw = NO_VALUE
    additional_usage_values: msgspec.Raw = NO_VALUE
    status: object = None
    error_information: msgspec.Raw = NO_VALUE

    @classmethod
    def of(cls, value: msgspec.Raw) -> Metadata | None:
        """The metadata of a record, empty where there is none; None if it cannot be read."""
        return cls() if bytes(value).strip() in _EMPTY else nested(_METADATA, value)

    def error_code(self, beside: msgspec.Raw = NO_VALUE) -> str | None:
        """The code of the error, here or beside the metadata."""
        error = nested(_ERROR, beside) or nested(_ERROR, self.error_information)
        return None if error is None else id_of(error.error_code)

    def usage(self, counts: Mapping[str, object], *places: msgspec.Raw) -> Mapping[str, object]:
        """The counts of the record beside the details of its usage object.

        The usage object moved from hidden_params to the metadata; before both only the response
        has one (`places`). Zeros of the record are no counts where the object has one.

        Raises:
            msgspec.ValidationError: a count is none.
        """
        found = nested(_USAGE, self.usage_object) or nested(_USAGE, self.additional_usage_values)
        for place in places:
            if found:
                break
            holder = nested(_WITH_USAGE, place) or _WithUsage()
            found = nested(_USAGE, holder.usage_object) or nested(_USAGE, holder.usage)
        usage = _in_openai_names(found or {})
        for name, value in counts.items():
            if value is not None and (value not in _ZEROS or usage.get(name) is None):
                usage[name] = value
        return usage


def first_id(*candidates: object) -> str | None:
    """The first known of some ids, the most telling first; it is hashed like every id."""
    return next((text for value in candidates if (text := id_of(value))), None)


def user_of(*candidates: object) -> str | None:
    """The first known of some ids of users; the owner that keys without one get is nobody."""
    return first_id(*(one for one in candidates if one != _NO_OWNER))


def _in_openai_names(usage: Mapping[str, object]) -> dict[str, object]:
    """The usage object of any provider in the names that the counts of the record have."""
    if "prompt_tokens" in usage or not {"input_tokens", "inputTokens"} & usage.keys():
        return dict(usage)
    told = read_usage(usage)
    if told is None:
        return dict(usage)
    details = {"cached_tokens": told.cached_tokens, "cache_write_tokens": told.cache_write_tokens}
    return {
        "prompt_tokens": told.prompt_tokens,
        "completion_tokens": told.output_tokens,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": told.reasoning_tokens},
    }


_METADATA: Final = msgspec.json.Decoder(Metadata)
_WITH_USAGE: Final = msgspec.json.Decoder(_WithUsage)
_ERROR: Final = msgspec.json.Decoder(_Error)
_USAGE: Final = msgspec.json.Decoder(dict[str, object])
