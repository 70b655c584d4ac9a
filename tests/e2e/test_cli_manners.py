"""What people expect of a command line: help, hints, streams, completion, a clean stop."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from kvtrace import api
from kvtrace.cli import shells
from kvtrace.cli.app import app
from kvtrace.cost.gpus import gpu_names
from kvtrace.errors import UsageError
from kvtrace.export.targets import TARGETS
from kvtrace.ingest.registry import all_formats
from kvtrace.reuse.policies.run import POLICIES
from kvtrace.scenarios.document import OPTIONS, shipped_scenarios
from kvtrace.synth.formats import FORMATS as WRITTEN
from tests.conftest import REPO, Analysed
from tests.e2e.conftest import Run

HEAVY = ("polars", "duckdb", "scipy", "plotly", "numpy", "numba", "jinja2", "rich")


def commands() -> dict[str, Any]:
    """Every verb by its words, those of groups too."""
    found: dict[str, Any] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        below = getattr(command, "commands", None)
        if below is None:
            found[" ".join(words)] = command
        else:
            for name, one in below.items():
                walk(one, (*words, name))

    walk(typer.main.get_command(app), ())
    return found


COMMANDS = commands()


def flags(command: Any) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def examples(command: Any) -> list[str]:
    """The lines below `Examples:` of the help."""
    _, _, rest = (command.help or "").partition("Examples:\n")
    return [line.strip() for line in rest.splitlines() if line.strip()]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_verb_has_examples_whose_flags_exist(name: str) -> None:
    command = COMMANDS[name]
    lines = examples(command)
    assert lines
    own = [line for line in lines if f"kvtrace {name}" in line]
    assert own
    for line in own:
        words = shlex.split(line.split(f"kvtrace {name}", 1)[1].split("|")[0])
        used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= flags(command), line


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_verb_can_be_quiet_verbose_json_and_written(name: str) -> None:
    assert {"-q", "--quiet", "-v", "--verbose", "--json", "-o"} <= flags(COMMANDS[name])


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        ("analyse logs", "KVT-U100", "`kvtrace analyze`"),
        ("cost validat x.csv", "KVT-U100", "`kvtrace cost validate`"),
        ("analyze logs --hardwar H100", "KVT-U102", "`--hardware`"),
        ("replay reports/x --growth", "KVT-U101", "kvtrace replay --help"),
        ("analyze", "KVT-U103", "`kvtrace analyze logs/`"),
        ("ledger --tokens many", "KVT-U105", "kvtrace ledger --help"),
        ("report x --to htm", "KVT-U106", "`--to html`"),
        ("query a b --mode tabel", "KVT-U106", "`--mode table`"),
        ("formats vllm_txt", "KVT-U012", "`vllm_text`"),
        ("explain net_negative_hit", "KVT-U086", "net_negative_hits"),
        ("ledger --hardware H10O-SXM5", "KVT-C041", "H100-SXM5"),
        ("llm Llama-3.1-70", "KVT-C021", "Meta-Llama-3.1-70B"),
    ],
)
def test_a_slip_is_answered_with_code_and_what_was_meant(
    kvtrace: Run, words: str, code: str, hint: str
) -> None:
    done = kvtrace(*words.split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error[{code}]: ")
    assert hint in done.stderr
    assert "\nhint: " in done.stderr


def test_an_option_that_is_none_is_answered_with_close_ones() -> None:
    with pytest.raises(UsageError) as caught:
        api.ReplayAsk(options=("pool_dram",)).documents()
    assert caught.value.code == "KVT-U021"
    assert "did you mean `--option pool_dram_tcp`" in (caught.value.hint or "")


def test_codes_of_the_command_line_can_be_explained(kvtrace: Run) -> None:
    for code in ("KVT-U100", "KVT-U102", "KVT-U103"):
        assert "exit code" in kvtrace("explain", code).stdout


def test_a_result_goes_to_the_file_of_o_and_a_json_name_means_json(
    kvtrace: Run, tmp_path: Path
) -> None:
    shown = kvtrace("llm", "Llama-3.1-8B", "--json")
    written = kvtrace("llm", "Llama-3.1-8B", "-o", tmp_path / "llm.json")
    assert written.stdout == ""
    assert written.stderr == f"{tmp_path / 'llm.json'} written\n"
    assert json.loads((tmp_path / "llm.json").read_text()) == json.loads(shown.stdout)
    text = kvtrace("llm", "Llama-3.1-8B", "-o", tmp_path / "llm.txt", "-q")
    assert (text.stdout, text.stderr) == ("", "")
    assert (tmp_path / "llm.txt").read_text() == kvtrace("llm", "Llama-3.1-8B").stdout


def test_verbose_says_where_settings_come_from_and_leaves_stdout_alone(kvtrace: Run) -> None:
    plain = kvtrace("ledger", "--llm", "Llama-3.1-8B", "--json")
    more = kvtrace(
        "ledger", "--llm", "Llama-3.1-8B", "--json", "-v", environment={"KVTRACE_TP": "2"}
    )
    assert "setting llm = Llama-3.1-8B (flag)" in more.stderr
    assert "setting tp = 2 (environment)" in more.stderr
    assert "took" in more.stderr
    assert json.loads(more.stdout)["constants"]
    assert plain.stderr == ""


def test_no_escape_reaches_a_pipe(kvtrace: Run) -> None:
    for words in (("ledger",), ("explain", "TTFT"), ("formats",), ("nothing",), ("doctor",)):
        done = kvtrace(*words, environment={"NO_COLOR": ""})
        assert "\x1b" not in done.stdout + done.stderr


def completed(line: str, **environment: str) -> list[str]:
    """What bash would offer at the end of this line."""
    words = line.split()
    number = len(words) if line.endswith(" ") else len(words) - 1
    done = subprocess.run(
        [sys.executable, "-m", "kvtrace"],
        env={
            **os.environ,
            "COMP_WORDS": line,
            "COMP_CWORD": str(number),
            "_KVTRACE_COMPLETE": "complete_bash",
            **environment,
        },
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("kvtrace explain net_neg", ["net_negative", "net_negative_hits"]),
        ("kvtrace replay x --option pool_dram_t", ["pool_dram_tcp"]),
        ("kvtrace analyze x --llm Meta-Llama-3.1-70", ["Meta-Llama-3.1-70B"]),
        ("kvtrace ledger --path pool_tcp,local", ["pool_tcp,local_nvme"]),
        ("kvtrace query reuse/summ", ["reuse/summary"]),
        ("kvtrace analyze --dep", ["--depth"]),
        ("kvtrace analyze --depth=f", ["full"]),
        ("kvtrace analyze -q --lang z", ["zh"]),
        ("kvtrace cost val", ["validate"]),
        ("kvtrace report x --to j", ["json"]),
        ("kvtrace query reports/x reuse/summ", ["reuse/summary"]),
        ("kvtrace query reports/x --limit 5 reuse/summ", ["reuse/summary"]),
        ("kvtrace explain net_negative net_neg", []),
        ("kvtrace llm 'Meta-Llama-3.1-70", ["Meta-Llama-3.1-70B"]),
        ("kvtrace verify ", []),
    ],
)
def test_a_shell_completes_values(line: str, wanted: list[str]) -> None:
    assert completed(line) == wanted


def test_other_shells_get_help_and_what_is_typed_has_no_types_checked() -> None:
    zsh = {"_KVTRACE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "kvtrace ver"}
    root = typer.main.get_command(app)
    said = "The headline numbers again, by another way."
    assert shells.answer(root, zsh) == (f'_arguments \'*: :(("verify":"{said}"))\'', 0)
    assert shells.answer(root, zsh | {"_TYPER_COMPLETE_ARGS": "kvtrace verify "}) == ("_files", 0)
    fish = {"_KVTRACE_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": "kvtrace sni"}
    action = "_TYPER_COMPLETE_FISH_ACTION"
    told = "What each file is, and what would make it say more."
    assert shells.answer(root, fish | {action: "get-args"}) == (f"sniff\t{told}", 0)
    assert shells.answer(root, fish | {action: "is-args"}) == ("", 0)
    none = fish | {"_TYPER_COMPLETE_ARGS": "kvtrace nothing", action: "is-args"}
    assert shells.answer(root, none) == ("", 1)
    assert shells.answer(root, {"_KVTRACE_COMPLETE": "complete_powershell"}) is None
    assert shells.answer(root, {}) is None


def test_completed_values_are_those_that_exist() -> None:
    assert set(api.complete("format")) >= {one.name for one in all_formats()}
    assert set(api.complete("synth")) == {"all", *WRITTEN}
    assert set(api.complete("export")) == set(TARGETS)
    assert set(api.complete("policy")) == set(POLICIES)
    assert set(api.complete("gpu")) == {name for name, _ in gpu_names()}
    assert set(api.complete("option")) == set(OPTIONS)
    assert set(api.complete("scenario")) == {*OPTIONS, *shipped_scenarios()}
    listing = json.loads(api.hardware().to_json())
    names = {one["name"] for part in ("links", "stores") for one in listing[part]}
    assert names <= set(api.complete("hardware"))
    assert api.complete("name", "KVT-B") == ["KVT-B001"]
    for gate in api.complete("gate"):
        value = "low" if gate.startswith("confidence") else "info" if "severity" in gate else "1"
        api.check_gates([gate if gate[-1].isalpha() else f"{gate}{value}"])


def test_completion_loads_nothing_heavy() -> None:
    line = {
        "_KVTRACE_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": "kvtrace replay x --option ",
    }
    probe = "import sys; from kvtrace.cli import run; run([]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env={**os.environ, **line},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pool_dram_tcp" in done.stdout
    loaded = done.stdout.splitlines()[-1].split()
    assert "kvtrace.cli.shells" in loaded
    assert [name for name in (*HEAVY, "pydantic") if name in loaded] == []


def test_no_value_that_can_be_completed_needs_a_heavy_library() -> None:
    kinds = ("finding", "format", "gate", "hardware", "llm", "name", "option", "query", "synth")
    probe = (
        "import sys; from kvtrace import api\n"
        f"for kind in {kinds!r}: assert api.complete(kind), kind\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "kvtrace.api.completions" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def started(output: Path) -> subprocess.Popen[str]:
    """An analysis of the samples in a process of its own, stopped by who started it."""
    return subprocess.Popen(
        [sys.executable, "-m", "kvtrace", "analyze", "sample_traces", "-o", str(output), "-v"],
        cwd=REPO,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("after", "number", "code"),
    [("kvtrace ", signal.SIGTERM, 143), ("ingest: ", signal.SIGINT, 130)],
)
def test_a_stop_breaks_nothing_and_says_how_to_go_on(
    kvtrace: Run, samples: Analysed, tmp_path: Path, after: str, number: signal.Signals, code: int
) -> None:
    output = tmp_path / "stopped here"
    process = started(output)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(after):
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert out == ""
    assert "Traceback" not in err
    assert f"run it again: kvtrace analyze sample_traces -o '{output}' -v" in err
    assert not (output / "report.html").exists()
    again = kvtrace("ingest", REPO / "sample_traces", "-o", output, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["digest"] == samples.record.data.dataset_digest
    left = [one.name for one in output.rglob("*") if one.name.endswith((".tmp", ".partial"))]
    assert left == []


def test_sniff_ends_with_what_the_files_can_tell_and_what_to_type_next(kvtrace: Run) -> None:
    done = kvtrace("sniff", "sample_traces", cwd=REPO)
    assert done.stdout.splitlines()[-2:] == [
        "3 of 4 files can be read, best evidence grade A: blocks of each request",
        "next: kvtrace analyze sample_traces",
    ]
    assert "confidence 0.00" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "gives: request_id" in done.stdout


def test_sniff_of_what_nobody_knows_offers_a_mapping_and_no_analysis(
    kvtrace: Run, tmp_path: Path
) -> None:
    (tmp_path / "own.jsonl").write_text('{"a": 1}\n')
    done = kvtrace("sniff", "own.jsonl", cwd=tmp_path)
    assert "--suggest-mapping" in done.stdout.splitlines()[-1]
    assert "next: " not in done.stdout


def test_the_ledger_answers_before_its_tables_and_says_what_is_an_example(kvtrace: Run) -> None:
    head = kvtrace("ledger", "--path", "pool_rdma_direct,1GB/s").stdout.partition("\n\n")[0]
    text = " ".join(head.split())
    assert "faster than recomputing on 1 of 2 paths, most by pool_rdma_direct (-" in text
    assert "slower on 1GB/s" in text
    assert "state yours with `--llm NAME --hardware NAME`" in text
    stated = kvtrace("ledger", "--llm", "Llama-3.1-8B", "--hardware", "A100")
    assert "example" not in stated.stdout
    document = json.loads(kvtrace("ledger", "--llm", "Llama-3.1-8B", "--json").stdout)
    assert document["assumed"].startswith("GPU is an example")
