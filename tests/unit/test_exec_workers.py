"""Tasks in other processes: order, errors, killed processes, and how many are worth it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kvtrace.errors import Location, ModelError
from kvtrace.exec import workers as exec_workers
from kvtrace.exec.workers import Workers, enough_workers


def scaled(shared: int, spec: int) -> int:
    return shared * spec


def whose(shared: int, spec: int) -> int:
    return os.getpid()


def refused(shared: int, spec: int) -> int:
    raise ModelError("KVT-T001", f"{spec} is refused", where=Location("x.toml", 3), hint="another")


def killed_once(folder: str, spec: int) -> int:
    """The process that takes 2 first is killed in the middle of it."""
    mark = Path(folder) / "killed"
    if spec == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return spec * 10


def killed_always(shared: str, spec: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@pytest.fixture(scope="module")
def two() -> Iterator[Workers[int]]:
    with Workers(7, count=2) as workers:
        yield workers


@pytest.mark.parametrize("count", [1, 3])
def test_results_stand_in_the_order_of_the_specs(count: int) -> None:
    ended = []
    with Workers(7, count=count) as workers:
        found = workers.ordered(scaled, [3, 1, 2], on_result=lambda: ended.append(1))
    assert (found, len(ended)) == ([21, 7, 14], 3)


def test_one_task_or_one_worker_needs_no_other_process(two: Workers[int]) -> None:
    assert two.ordered(whose, [1]) == [os.getpid()]
    with Workers(7, count=1) as one:
        assert set(one.ordered(whose, [1, 2])) == {os.getpid()}


def test_processes_are_kept_for_the_next_tasks(two: Workers[int]) -> None:
    first, second = (set(two.ordered(whose, [0] * 8)) for _ in range(2))
    assert os.getpid() not in first | second
    assert len(first | second) <= 2


def test_an_error_arrives_as_it_was_raised_and_work_goes_on(two: Workers[int]) -> None:
    with pytest.raises(ModelError, match="is refused") as caught:
        two.ordered(refused, [1, 2])
    assert "x.toml:3" in caught.value.render()
    assert "hint: another" in caught.value.render()
    assert two.ordered(scaled, [1, 2]) == [7, 14]


def test_a_killed_process_is_started_again_with_its_task(tmp_path: Path) -> None:
    with Workers(str(tmp_path), count=2) as workers:
        assert workers.ordered(killed_once, [1, 2, 3]) == [10, 20, 30]
    assert (tmp_path / "killed").exists()


def test_a_task_that_kills_every_process_is_given_up() -> None:
    with (
        Workers("", count=2) as workers,
        pytest.raises(ModelError, match="killed 3 times") as caught,
    ):
        workers.ordered(killed_always, [1, 2])
    assert caught.value.code == "KVT-X001"


def test_leaving_early_stops_what_is_under_way(two: Workers[int]) -> None:
    with closing(two.map(scaled, list(range(50)))) as outcomes:
        next(outcomes)
    assert [one for one in threading.enumerate() if one.name == exec_workers.THREAD] == []
    assert two.ordered(scaled, [1, 2]) == [7, 14]


@pytest.mark.parametrize(
    ("stated", "tasks", "seconds", "bytes_each", "count"),
    [
        (3, 1, 0.0, 0.0, 3),  # stated
        (None, 8, 10.0, 0.0, 4),  # four processors
        (None, 2, 10.0, 0.0, 2),  # two tasks
        (None, 8, 1.3, 0.0, 1),  # 1.3 - 1.3 / 4 < 1 s, what a start takes
        (None, 8, 1.4, 0.0, 4),  # 1.4 - 1.4 / 4 = 1.05 s
        (None, 8, 10.0, 300.0, 3),  # 1 000 bytes hold three
        (None, 8, 10.0, 2000.0, 1),
    ],
)
def test_processes_are_as_many_as_pay(
    monkeypatch: pytest.MonkeyPatch,
    stated: int | None,
    tasks: int,
    seconds: float,
    bytes_each: float,
    count: int,
) -> None:
    monkeypatch.setattr(exec_workers, "processors", lambda: 4)
    monkeypatch.setattr(exec_workers, "_free_bytes", lambda: 1000.0)
    assert enough_workers(stated, tasks=tasks, seconds=seconds, bytes_each=bytes_each) == count
