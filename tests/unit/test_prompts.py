"""Prompts to block keys: the hash is SipHash, prefixes share keys, and every estimate is said."""

from __future__ import annotations

import hashlib
import json
from array import array
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.errors import UsageError
from kvtrace.ingest.contract import ReadContext, Tally
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.prompts.chat import render_messages
from kvtrace.ingest.prompts.siphash import prefix_keys
from kvtrace.ingest.prompts.tokenizer import load_tokenizer
from kvtrace.ingest.readfile import IngestSettings

KEY = b"a run's key of 32 bytes or more.."


def hasher(**given_: object) -> PromptHasher:
    return PromptHasher(KEY, **given_)  # type: ignore[arg-type]


def described(made_by: PromptHasher) -> ReadContext:
    context = ReadContext("sample", Tally(), 0)
    made_by.describe(context)
    return context


@pytest.mark.parametrize("compiled", [False, True])
def test_keys_are_siphash_2_4_of_each_prefix(compiled: bool) -> None:
    # The reference implementation's vectors: key 00 01 … 0f, input 00 01 … of 1, 2, 3, 15 bytes.
    key, text = bytes(range(16)), bytes(range(15))
    by_one = prefix_keys(text, key=key, block_bytes=1, compiled=compiled)
    assert [int(item).to_bytes(8, "little").hex() for item in by_one[:3]] == [
        "fd67dc93c539f874",
        "5a4fa9d909806c0d",
        "2d7efbd796666785",
    ]
    assert int(by_one[14]) == 0xA129CA6149BE45E5
    assert prefix_keys(text, key=key, block_bytes=64, compiled=compiled).tolist() == [
        0xA129CA6149BE45E5
    ]
    assert len(prefix_keys(b"", key=key, block_bytes=64, compiled=compiled)) == 0


@given(st.binary(max_size=600), st.binary(min_size=16, max_size=16), st.integers(1, 100))
def test_both_implementations_agree(text: bytes, key: bytes, block_bytes: int) -> None:
    plain = prefix_keys(text, key=key, block_bytes=block_bytes, compiled=False)
    quick = prefix_keys(text, key=key, block_bytes=block_bytes, compiled=True)
    assert plain.tolist() == quick.tolist()


@given(st.text(max_size=300), st.text(max_size=100), st.text(max_size=100))
def test_prompts_share_keys_as_far_as_whole_blocks_agree(head: str, one: str, other: str) -> None:
    left, right = (head + one).encode(), (head + other).encode()
    common = next(
        (at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    made = hasher(block_tokens=4, bytes_per_token=2.0)
    first, second = made.text(left).keys, made.text(right).keys
    if left == right:
        assert first == second
    else:
        shared = common // 8  # 4 tokens of 2 bytes
        assert first[:shared] == second[:shared]
        assert not set(first[shared:]) & set(second[shared:])


def test_length_is_estimated_and_said_so() -> None:
    made = hasher()
    blocks = made.text("x" * 130)
    # 16 tokens × 4 bytes = 64 bytes a block: 130 bytes are 3 blocks and ceil(130 / 4) = 33 tokens.
    assert (len(blocks.keys), blocks.tokens, blocks.flags) == (3, 33, ("tokens_estimated",))
    assert made.count("12345") == (2, ("tokens_estimated",))
    context = described(made)
    assert (context.found_block_size_tokens, context.partial_tail) == (16, "counted")
    assert context.block_scope == "global"
    (note,) = context.notes
    assert (note.code, note.severity) == ("block_keys_from_bytes", "warning")
    assert "assumed" in note.message
    # real 5.0 bytes a token: 4/5 of the tokens, so 25 % too high; real 2.5: 1.6 times, 38 % too low
    assert "25% too high or 38% too low" in note.message


@given(st.binary(max_size=2000), st.floats(1, 16), st.integers(1, 64))
def test_estimated_lengths_agree_with_block_counts(text: bytes, ratio: float, size: int) -> None:
    blocks = hasher(block_tokens=size, bytes_per_token=ratio).text(text)
    assert len(blocks.keys) == -(-blocks.tokens // size)


def test_ratio_that_is_stated_is_not_called_assumed() -> None:
    made = hasher(bytes_per_token=3.5)
    assert len(made.text("x" * 57).keys) == 2  # 56 bytes a block
    (note,) = described(made).notes
    assert "stated by --bytes-per-token" in note.message
    assert "too high" not in note.message


def test_measured_ratio_needs_enough_prompts_and_nobody_to_state_one() -> None:
    pairs = [(300, 100)] * 8
    made = hasher()
    made.calibrate(pairs[:7])
    assert len(made.text("x" * 64).keys) == 1
    made.calibrate(pairs)  # too late: keys were made
    assert len(made.text("x" * 64).keys) == 1
    made = hasher()
    made.calibrate(pairs)
    assert len(made.text("x" * 64).keys) == 2  # 48 bytes a block
    context = described(made)
    assert "measured on 8 prompts" in context.notes[0].message
    assert context.block_scope == "file"
    stated = hasher(bytes_per_token=4.0)
    stated.calibrate(pairs)
    assert len(stated.text("x" * 64).keys) == 1


def test_keys_depend_on_run_key_and_adapter() -> None:
    text = "the same text"
    keys = {
        hasher().text(text).keys[0],
        hasher().text(text, adapter="lora").keys[0],
        PromptHasher(b"another key").text(text).keys[0],
    }
    assert len(keys) == 3


def test_stated_length_cuts_or_extends_the_keys() -> None:
    made = hasher(block_tokens=16, bytes_per_token=4.0)
    blocks = made.text("y" * 256)  # 4 blocks
    longer = made.text("y" * 256 + "z" * 64)
    assert blocks.keys_for(64) == blocks.keys
    assert blocks.keys_for(33) == blocks.keys[:3]
    extended = blocks.keys_for(100)  # 7 blocks are due
    assert extended is not None
    assert extended[:4] == blocks.keys
    assert len(set(extended)) == 7
    assert made.text("y" * 256).keys_for(100) == extended
    assert not set(extended[4:]) & set(longer.keys_for(100) or [])
    assert blocks.keys_for(16) is None  # a quarter of the text: of something else
    assert blocks.keys_for(1000) is None
    assert made.text("").keys_for(5) is None
    assert made.text("").keys_for(0) == array("Q")


def test_token_ids_are_taken_as_they_are() -> None:
    made = hasher(block_tokens=4)
    blocks = made.token_ids([1, 2, 3, 4, 5])
    assert blocks is not None
    assert (len(blocks.keys), blocks.tokens, blocks.flags) == (2, 5, ())
    longer = made.token_ids([1, 2, 3, 4, 6, 7])
    assert longer is not None
    assert [a == b for a, b in zip(blocks.keys, longer.keys, strict=True)] == [True, False]
    assert made.token_ids([1, -1]) is None
    assert made.token_ids([1, 1 << 32]) is None
    context = described(made)
    assert context.block_size_reason == "4 from --block-size"
    assert context.notes == []


def test_messages_are_rendered_by_a_stated_template() -> None:
    messages = [
        {"role": "system", "content": "be kind", "name": "ignored"},
        {"role": "user", "content": [{"type": "text", "text": "two"}, {"text": "parts"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
    ]
    digest = hashlib.blake2b(b'{"type":"image_url","image_url":"x"}', digest_size=16).hexdigest()
    assert render_messages(json.dumps(messages, separators=(",", ":")).encode()) == (
        b"<system>\nbe kind\n"
        b"<user>\ntwo\nparts\n"
        b"<user>\n<medium " + digest.encode() + b">\n"
        b'<assistant>\n\n[{"id":"c1"}]'
    )
    made = hasher()
    first = made.messages(json.dumps(messages[:1]).encode())
    assert first.keys == made.text("<system>\nbe kind\n").keys
    codes = {note.code for note in described(made).notes}
    assert codes == {"block_keys_from_bytes", "chat_template_assumed"}


@pytest.mark.parametrize("bad", [b"{}", b"[1]", b"[", b'[{"role": 3}]', b'["a"]'])
def test_what_is_no_list_of_messages_is_refused(bad: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        hasher().messages(bad)


def test_hasher_that_made_nothing_says_nothing() -> None:
    context = described(hasher())
    assert (context.notes, context.found_block_size_tokens) == ([], None)


def test_lone_surrogates_are_text_like_any_other() -> None:
    assert len(hasher().text("\ud800" * 3).keys) == 1


def test_tokenizer_path_that_is_none_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as missing:
        hasher(tokenizer=str(tmp_path / "absent.json"))
    assert missing.value.code == "KVT-I021"


def test_another_tokenizer_at_the_same_path_is_another_setting(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    settings = IngestSettings(tokenizer=str(file))
    first = str(settings.described()["tokenizer"])
    assert first.startswith("tokenizer.json ")
    assert str(tmp_path) not in first
    file.write_text("{ }")
    assert settings.described()["tokenizer"] != first
    file.unlink()
    with pytest.raises(UsageError):
        settings.described()


def test_hugging_face_tokenizer_makes_token_blocks(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    vocabulary = {"[UNK]": 0, "a": 1, "b": 2, "c": 3}
    file = tmp_path / "tokenizer.json"
    file.write_text(
        json.dumps(
            {
                "version": "1.0",
                "pre_tokenizer": {"type": "Whitespace"},
                "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
            }
        )
    )
    made = hasher(block_tokens=2, tokenizer=str(file))
    blocks, ids = made.text("a b c"), made.token_ids([1, 2, 3])
    assert ids is not None
    assert (blocks.keys, blocks.tokens, blocks.flags) == (ids.keys, 3, ())
    assert made.count("a b") == (2, ())
    made.text("\ud800")
    assert {note.code for note in described(made).notes} == {"prompts_tokenized"}


def test_tiktoken_ranks_make_token_blocks(tmp_path: Path) -> None:
    pytest.importorskip("tiktoken")
    import base64

    file = tmp_path / "cl100k_test.tiktoken"
    tokens = [bytes([octet]) for octet in range(256)] + [b"ab", b"abc"]
    ranks = (f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens))
    file.write_text("\n".join(ranks))
    tokenizer = load_tokenizer(str(file))
    assert list(tokenizer.encode("abcab!")) == [257, 256, ord("!")]
    assert "cl100k" in tokenizer.name


@pytest.mark.parametrize("content", ["{}", "not ranks at all", "YQ== 0"])
def test_file_without_a_tokenizer_is_an_error_of_the_user(tmp_path: Path, content: str) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("tiktoken")
    file = tmp_path / "tokenizer.json"
    file.write_text(content)
    with pytest.raises(UsageError) as refused:
        load_tokenizer(str(file))
    assert refused.value.code == "KVT-I022"
