"""The figures of predicted against measured: what they draw, and that they are there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.conftest import REPO

PLOTS = REPO / "docs" / "model" / "plots"
POINTS = """id,series,kind,metric,value,unit,model,gpu,tp,bytes,path,note
K1,sizes,kv_size,kv_bytes_per_token,327680,B,Llama-3.1-70B,,,,,
K2,sizes,kv_size,kv_bytes_per_token,300000,B,Llama-3.1-70B,,,,,
K3,others,kv_size,kv_bytes_per_token,131072,B,Llama-3.1-8B,,,,,
K4,others,kv_size,kv_bytes_per_token,1,B,no-such-llm,,,,,
"""


@pytest.fixture
def plots(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPO / "scripts"))
    return import_module("plot_validation")


@pytest.fixture
def scatter(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPO / "scripts"))
    return import_module("scatter")


def test_a_figure_has_the_points_their_median_error_and_the_constants(
    plots: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "points.csv"
    file.write_text(POINTS)
    files = plots.render(file)
    assert set(files) == {"kv_size.svg", "README.md"}
    svg = files["kv_size.svg"]
    # errors of 0, 9.2 and 0 %: the LLM that nobody knows is not drawn
    assert "3 points of kv_size · median error 0.0 %" in svg
    assert f"Constants {plots.constants_version()}." in svg
    assert "sizes (2)" in svg
    assert "others (1)" in svg
    assert "K2: measured 3e+05, predicted 3.277e+05" in svg
    assert "4 published measurements: 3 drawn, 1 without a prediction, 0 not" in files["README.md"]
    assert "](kv_size.svg)" in files["README.md"]
    ElementTree.fromstring(svg)
    assert plots.render(file) == files


def test_equal_values_lie_on_the_diagonal_and_decades_are_equally_wide(scatter: ModuleType) -> None:
    dots = [
        scatter.Dot("same", "a", 10.0, 10.0),
        scatter.Dot("above", "a", 10.0, 100.0),
        scatter.Dot("corner", "b", 1.0, 1.0),
        scatter.Dot("top", "b", 100.0, 100.0),
    ]
    svg = scatter.Scatter("t", "s", "n", "ms", tuple(dots)).svg()
    at = {
        name: (float(x), float(y))
        for name, x, y in re.findall(r'<title>(\w+):.*?<circle cx="([\d.]+)" cy="([\d.]+)"', svg)
    }
    # two decades over 400: the frame runs from (78, 458) to (478, 58)
    inside = {"same": (278, 258), "above": (278, 58)}
    assert at == {**inside, "corner": (78, 458), "top": (478, 58)}
    first, second = (svg.count(f'fill="{colour}"') for colour in scatter.COLOURS[:2])
    assert first == second == 3  # two points and the legend
    assert "prefers-color-scheme: dark" in svg
    assert svg == scatter.Scatter("t", "s", "n", "ms", tuple(reversed(dots))).svg()


def test_words_of_a_figure_cannot_break_it(scatter: ModuleType) -> None:
    dot = scatter.Dot("<b>", 'a & "b"', 1.0, 2.0)
    tree = ElementTree.fromstring(scatter.Scatter('t "<', "&", "n", "ms", (dot,)).svg())
    assert tree.attrib["aria-label"] == 't "<'


def test_the_page_shows_every_figure_and_each_says_its_constants() -> None:
    page = (PLOTS / "README.md").read_text(encoding="utf-8")
    figures = sorted(path.name for path in PLOTS.glob("*.svg"))
    assert figures
    assert sorted(re.findall(r"\]\((\w+\.svg)\)", page)) == figures
    assert "plots/README.md" in (REPO / "docs" / "model" / "validation.md").read_text()
    (stated,) = set(re.findall(r"Constants: (fitted [\d-]+, data [0-9a-f]{8})\.", page))
    for name in figures:
        svg = (PLOTS / name).read_text(encoding="utf-8")
        assert re.search(r">\d+ points of ", svg)
        assert f"Constants {stated}." in svg


@pytest.mark.shared
def test_the_figures_have_the_points_of_the_shared_file(
    plots: ModuleType, shared_dir: Path
) -> None:
    drawn = plots.render(shared_dir / "facts" / "validation_points.csv")
    for name, text in drawn.items():
        if name.endswith(".svg"):
            committed = (PLOTS / name).read_text(encoding="utf-8")
            points = re.findall(r">(\d+) points of", text)
            assert re.findall(r">(\d+) points of", committed) == points, "run plot_validation.py"
