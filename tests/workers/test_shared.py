"""What workers of one store divide between them: accounts of chat apps, and the times of a job."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from steno.service.chats import account_name
from tests import postgres
from tests.channels.conftest import OWNER
from tests.channels.telegram_stub import TOKEN, Telegram
from tests.channels.test_jobs import add, by_prompt, job, of_job, outcomes
from tests.gateway.client import Gateway, wait_until
from tests.program.model_server import ModelServer
from tests.workers.test_takeover import worker_of


@pytest.fixture
def telegram() -> Iterator[Telegram]:
    with Telegram() as running:
        yield running


def chats(telegram: Telegram) -> dict[str, str]:
    channel = {
        "kind": "telegram",
        "url": telegram.url,
        "token_env": "TG_TOKEN",
        "owners": [str(OWNER)],
        "options": {"poll_s": 2, "chat_per_s": 100, "edit_s": 0.1},
    }
    return {"TG_TOKEN": TOKEN, "STENO_CHANNELS": json.dumps({"tg": channel})}


def reader(url: str) -> str | None:
    """The worker that has the account."""
    schema = postgres.schema_of(url)
    asked = (
        f"select h.owner from {schema}.heads h join {schema}.sessions s on s.n = h.n "
        "where s.name like %s and h.owner is not null"
    )
    with closing(postgres.connect(url)) as connection:
        found = connection.execute(asked.encode(), (account_name("%"),)).fetchall()
    assert len(found) <= 1
    return str(found[0][0]) if found else None


@pytest.mark.promise(16, 67, 72)
def test_an_account_is_read_by_one_worker_and_by_another_when_that_is_killed(
    start: Callable[..., list[Gateway]], server: ModelServer, telegram: Telegram, url: str
) -> None:
    server.choose = by_prompt
    workers = start(2, environment=chats(telegram))
    telegram.say("hello")
    wait_until(lambda: telegram.texts(OWNER) == ["hi"], "the answer")
    first = str(reader(url))
    worker_of(workers, first).kill()
    said = telegram.say("are you there?")
    wait_until(lambda: telegram.texts(OWNER) == ["hi", "hi"], "the other's answer")
    assert reader(url) not in (None, first)
    telegram.push({"message": said})
    telegram.say("the end")
    wait_until(lambda: telegram.texts(OWNER) == ["hi"] * 3, "the last answer")
    assert len(server.requests) == 3, "each was answered once"


@pytest.mark.promise(69, 72)
def test_each_time_of_a_job_is_run_by_one_of_the_workers(
    start: Callable[[int], list[Gateway]], server: ModelServer
) -> None:
    server.choose = by_prompt
    [gateway, _] = start(2)
    id = add(gateway.world, "--every", "1s")
    wait_until(lambda: outcomes(gateway, id).count("done") > 2, "runs")
    gateway.world.steno("jobs", "pause", id)
    wait_until(lambda: "running" not in outcomes(gateway, id), "the last one to end")
    runs = job(gateway, id)["runs"]
    times = [one["at"] for one in runs if one["outcome"] == "done"]
    assert len(times) == len(set(times)) == len(of_job(server))
