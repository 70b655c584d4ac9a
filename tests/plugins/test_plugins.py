"""Formats of other packages: found, read, checked; a broken one is named, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kvtrace import api
from kvtrace.errors import InputError
from kvtrace.ingest import registry
from kvtrace.ingest.plugins.load import GROUP, find_plugins
from tests.conftest import REPO
from tests.plugins.packages import OURGATE, install, install_ourgate

SAMPLE = OURGATE / "sample.jsonl"
HEADER = """
from kvtrace.ingest.contract import Format, Guess, RequestRow
def sniff(head): return Guess(0.99, "mine") if "odd" in head.text else None
def read(records, context):
    for record in records:
        context.tally.use()
        yield RequestRow(offset=record.offset, line=record.line, prompt_tokens=5)
def make(**more):
    fields = dict(name="odd", title="Odd", framing="lines", best_grade="L", supplies=(),
                  missing={}, versions="1", sniff=sniff, read=read)
    return Format(**(fields | more))
"""


def kvtrace(*words: str | Path, packages: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A run in a process where these packages are installed."""
    path = os.pathsep.join((str(packages), str(REPO)))
    return subprocess.run(
        [sys.executable, "-m", "kvtrace", *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, **more},
        cwd=packages,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_ourgate(tmp_path_factory.mktemp("packages"))


def test_the_example_declares_the_entry_point_that_is_looked_for() -> None:
    project = tomllib.loads((OURGATE / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {GROUP: {"ourgate": "ourgate:FORMAT"}}
    code = (OURGATE / "ourgate" / "__init__.py").read_text()
    assert len(code.splitlines()) < 80


def test_a_format_of_another_package_is_told_read_and_named(packages: Path, tmp_path: Path) -> None:
    [told] = json.loads(kvtrace("sniff", SAMPLE, "--json", packages=packages).stdout)
    assert (told["format"], told["evidence_grade"]) == ("ourgate", "B")
    assert "kvtrace-ourgate 1.0" in told["why"]
    done = kvtrace("ingest", SAMPLE, "-o", tmp_path, "--json", packages=packages)
    assert done.returncode == 0, done.stderr
    totals = json.loads(done.stdout)["totals"]
    assert totals["requests"] == 3
    assert totals["prompt_tokens"] == 3_548  # 1200 + 300 + 2048
    assert totals["rejected"] == 1
    listed = kvtrace("formats", "ourgate", packages=packages).stdout
    assert "package kvtrace-ourgate 1.0" in listed


def test_without_the_package_the_log_is_not_known(packages: Path) -> None:
    done = kvtrace("sniff", SAMPLE, "--json", packages=packages, KVTRACE_NO_PLUGINS="1")
    assert json.loads(done.stdout)[0]["format"] is None


def test_a_dataset_is_read_again_when_the_package_changes(packages: Path, tmp_path: Path) -> None:
    words = ("ingest", SAMPLE, "-o", tmp_path / "out")
    assert kvtrace(*words, packages=packages).returncode == 0
    assert "reused" in kvtrace(*words, packages=packages).stderr
    newer = install(
        tmp_path / "newer",
        name="kvtrace-ourgate",
        code=(OURGATE / "ourgate" / "__init__.py").read_text(),
        target="ourgate:FORMAT",
        version="1.1",
    )
    assert "reused" not in kvtrace(*words, packages=newer).stderr


@pytest.mark.parametrize(
    ("code", "target", "error", "said"),
    [
        ("import no_such_module", "odd:FORMAT", "KVT-P001", "ModuleNotFoundError"),
        ("raise SystemExit(0)", "odd:FORMAT", "KVT-P001", "ended the program"),
        ("FORMAT = 1 / 0", "odd:FORMAT", "KVT-P001", "ZeroDivisionError"),
        ("x = 1", "odd:FORMAT", "KVT-P001", "AttributeError"),
        ("FORMAT = 'mooncake'", "odd:FORMAT", "KVT-P002", "gives a str"),
        (HEADER + "FORMAT = make(name='mooncake')", "odd:FORMAT", "KVT-P003", "has this name"),
        (HEADER + "FORMAT = make(name='../x')", "odd:FORMAT", "KVT-P003", "no slug"),
        (HEADER + "FORMAT = (make(), make())", "odd:FORMAT", "KVT-P003", "has this name"),
        (HEADER + "FORMAT = make(best_grade='S')", "odd:FORMAT", "KVT-P003", "A, B, C, L"),
        (HEADER + "FORMAT = make(framing='xml')", "odd:FORMAT", "KVT-P003", "framing"),
        (HEADER + "FORMAT = make(missing={'luck': ''})", "odd:FORMAT", "KVT-P003", "luck"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, target: str, error: str, said: str
) -> None:
    monkeypatch.syspath_prepend(install(tmp_path, name="kvtrace-odd", code=code, target=target))
    monkeypatch.delitem(sys.modules, "odd", raising=False)
    [plugin] = find_plugins({"mooncake"})
    assert plugin.formats == ()
    assert plugin.fault is not None
    assert plugin.fault.code == error
    text = plugin.fault.render()
    assert "`kvtrace-odd 1.0`" in text
    assert said in text
    assert "pip uninstall kvtrace-odd" in text


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("def sniff(head): raise KeyError('x')\nFORMAT = make(sniff=sniff)", "P004", "KeyError"),
        ("def sniff(head): return Guess(7.0, '')\nFORMAT = make(sniff=sniff)", "P005", "guess"),
        ("def read(r, c): raise OSError('no')\nFORMAT = make(read=read)", "P004", "OSError"),
        ("def read(r, c): return 5\nFORMAT = make(read=read)", "P004", "TypeError"),
        ("def read(r, c): yield 'row'\nFORMAT = make(read=read)", "P005", "a str, which is no row"),
        ("def read(r, c):\n for x in r: pass\n yield from ()\nFORMAT = make(read=read)", "P005",
         "took 2 records and gave 0"),
        ("def read(r, c):\n for x in r:\n  c.tally.use(); c.tally.use()\n yield from ()\n"
         "FORMAT = make(read=read)", "P005", "gave 4 outcomes"),
        ("def read(r, c):\n for x in r:\n  c.tally.use()\n"
         "  yield RequestRow(offset=x.offset, line=x.line, prompt_tokens='9')\n"
         "FORMAT = make(read=read)", "P005", "`prompt_tokens` of a row is a str"),
        ("def read(r, c):\n for x in r:\n  c.tally.use()\n"
         "  yield RequestRow(offset=x.offset, line=x.line, prompt_tokens=2**70)\n"
         "FORMAT = make(read=read)", "P005", "out of range"),
    ],
)  # fmt: skip
def test_a_format_that_misbehaves_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, error: str, said: str
) -> None:
    packages = install(
        tmp_path / "packages", name="kvtrace-odd", code=HEADER + code, target="odd:FORMAT"
    )
    monkeypatch.syspath_prepend(packages)
    monkeypatch.delitem(sys.modules, "odd", raising=False)
    (tmp_path / "odd.log").write_text("odd 1\nodd 2\n")
    registry.all_formats.cache_clear()
    try:
        with pytest.raises(InputError) as caught:
            api.ingest(tmp_path / "odd.log", output=tmp_path / "out")
    finally:
        registry.all_formats.cache_clear()
    assert caught.value.code == f"KVT-{error}"
    assert "`kvtrace-odd 1.0`" in caught.value.message
    assert said in caught.value.render()
    assert not (tmp_path / "out" / "dataset" / "manifest.json").exists()


def test_a_broken_package_ends_a_run_without_a_traceback(tmp_path: Path) -> None:
    packages = install(tmp_path, name="kvtrace-odd", code="1 / 0", target="odd:FORMAT")
    done = kvtrace("sniff", SAMPLE, packages=packages)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error[KVT-P001]: the formats of package `kvtrace-odd 1.0`")
    assert "Traceback" not in done.stderr


def test_doctor_says_which_package_is_broken(tmp_path: Path) -> None:
    packages = install(tmp_path, name="kvtrace-odd", code="x = 1", target="odd:FORMAT")
    done = kvtrace("doctor", "--json", packages=packages)
    assert done.returncode == 1, done.stderr
    [bad] = [one for one in json.loads(done.stdout)["checks"] if one["standing"] == "broken"]
    assert (bad["section"], bad["name"]) == ("formats", "odd")
    assert "kvtrace-odd 1.0" in bad["said"]


def test_our_own_formats_come_first_and_are_no_plugins() -> None:
    own = registry.own_formats()
    assert registry.all_formats()[: len(own)] == own
    assert {one.distribution for one in own} == {None}
