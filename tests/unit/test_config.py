"""Each setting remembers where its value came from, and a wrong one says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.config import resolve_settings
from kvtrace.errors import UsageError


@pytest.fixture(autouse=True)
def no_user_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))


def test_strongest_layer_wins_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "kvtrace.toml").write_text('llm = "project"\nhardware = "project"\ntp = 2\n')
    named = tmp_path / "named.toml"
    named.write_text('llm = "named"\nhardware = "named"\n')
    settings = resolve_settings(
        {"llm": "flag", "hardware": None},
        config=named,
        environment={"KVTRACE_INSTANCES": "4"},
        cwd=tmp_path,
    )
    assert (settings["llm"].value, settings["llm"].origin) == ("flag", "flag")
    assert (settings["hardware"].value, settings["hardware"].origin) == ("named", str(named))
    assert (settings["tp"].value, settings["tp"].origin) == (2, "kvtrace.toml")
    assert (settings["instances"].value, settings["instances"].origin) == (4, "environment")
    assert settings["depth"].is_default


def test_user_config_is_weaker_than_the_project_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    user = tmp_path / "home" / "kvtrace" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text('lang = "zh"\ndepth = "full"\n')
    (tmp_path / "kvtrace.toml").write_text('depth = "quick"\n')
    settings = resolve_settings(environment={}, cwd=tmp_path)
    assert (settings["lang"].value, settings["lang"].origin) == ("zh", "user config")
    assert settings["depth"].origin == "kvtrace.toml"


def test_a_misspelt_setting_offers_the_close_one(tmp_path: Path) -> None:
    (tmp_path / "kvtrace.toml").write_text("instance = 3\n")
    with pytest.raises(UsageError) as caught:
        resolve_settings(environment={}, cwd=tmp_path)
    assert "instances" in (caught.value.hint or "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tp", 0),
        ("lang", "fr"),
        ("max_reject_rate", 1.5),
        ("tz", "Mars/Olympus"),
        ("year", "soon"),
        ("tp", 1.5),
        ("depth", "deep"),
        ("allow_inert_pickle", "perhaps"),
    ],
)
def test_values_out_of_range_are_refused(name: str, value: str | float, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        resolve_settings({name: value}, environment={}, cwd=tmp_path)


def test_a_switch_is_off_unless_somebody_turns_it_on(tmp_path: Path) -> None:
    name = "allow_inert_pickle"
    assert not resolve_settings({name: None}, environment={}, cwd=tmp_path).switch(name)
    assert resolve_settings({name: True}, environment={}, cwd=tmp_path).switch(name)
    environment = {"KVTRACE_ALLOW_INERT_PICKLE": "true"}
    assert resolve_settings({}, environment=environment, cwd=tmp_path).switch(name)
    (tmp_path / "kvtrace.toml").write_text(f"{name} = false\n")
    assert not resolve_settings({}, environment={}, cwd=tmp_path).switch(name)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("llm = [")
    with pytest.raises(UsageError) as caught:
        resolve_settings(config=broken, environment={}, cwd=tmp_path)
    assert str(broken) in caught.value.render()
    with pytest.raises(UsageError):
        resolve_settings(config=tmp_path / "absent.toml", environment={}, cwd=tmp_path)


def test_the_salt_is_never_among_the_public_settings_or_in_an_error(tmp_path: Path) -> None:
    settings = resolve_settings({"salt": "long-enough"}, environment={}, cwd=tmp_path)
    assert "salt" not in {setting.name for setting in settings.public()}
    with pytest.raises(UsageError) as caught:
        resolve_settings({"salt": "s3cret"}, environment={}, cwd=tmp_path)
    assert "s3cret" not in caught.value.render()
