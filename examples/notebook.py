"""kvtrace in a notebook, cell by cell (`# %%` is a cell in Jupyter, VS Code and Spyder).

Run it as a program, too: `python examples/notebook.py`.
"""

# %% An audit: nothing is printed, progress goes to a function
from pathlib import Path
from tempfile import TemporaryDirectory

import kvtrace

HERE = Path(__file__).resolve().parent
folder = TemporaryDirectory()
stages: list[str] = []


def tell(stage: str, share: float | None) -> None:
    """Remember each stage once."""
    if stage not in stages:
        stages.append(stage)


audit = kvtrace.analyze(
    HERE.parent / "sample_traces", output=folder.name, llm="Meta-Llama-3.1-8B", progress=tell
)
audit  # a card with verdict, numbers and findings

# %% The verdict, and what carries it
verdict = audit.verdict
numbers = {one.id: (one.value, one.low, one.high, one.unit) for one in verdict.carrying_numbers}
verdict.outcome, verdict.confidence, numbers

# %% The findings that weigh most
worst = [(one.severity, one.id, one.action) for one in audit.findings[:3]]
worst

# %% Tables are polars frames
curve = audit.tables["reuse/capacity_curve"]
curve.head()

# %% Own questions are SQL over the dataset
longest = audit.sql(
    "select request_key, prompt_tokens from requests order by prompt_tokens desc, 1 limit 5"
)
longest

# %% A chart, drawn by the notebook itself
figure = audit.figure(audit.figures[0])
figure

# %% What leaves the notebook
page, record, decision = audit.to_html(), audit.to_json(), audit.to_adr()
sizes = {"html": len(page), "json": len(record), "adr": len(decision)}
sizes

# %% The folder is temporary here; yours stays
folder.cleanup()
