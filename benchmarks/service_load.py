"""Send requests to a service from many clients at once and report the results.

    convert-tf serve --encoder convert --intents model/ --port 8000 &
    python benchmarks/service_load.py --pid $! --clients 100 --minutes 10

Each client sends its next request as soon as it has an answer. A request has one to four texts.
One of them, at a random place, is a text whose vector and intent are known. The others occur in no
other request. If the answer for the known text is different, the service has confused texts or
callers, and the answer counts as wrong. If the service classifies texts, half of the requests go to
`/classify`.

The script prints the number of answers by status, requests per second and latencies. With --pid, it
also prints the memory of the service after each tenth of the time.
"""

import argparse
import asyncio
import base64
import itertools
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

LINES = Path(__file__).with_name("responses.txt").read_text(encoding="utf-8").splitlines()
WORDS = " ".join(LINES).split()
KNOWN = 50  # number of known texts
# Minimum cosine with the vector of the text alone. The batch affects how 8-bit values are rounded.
LEAST_COSINE = 0.97


class Known(NamedTuple):
    """Answers of the service for texts that were sent one by one.

    Attributes:
      texts: the texts, all different.
      vectors: float32 `[texts, dim]`, of length 1.
      intents: intent of each text; empty if the service does not classify texts.
    """

    texts: list[str]
    vectors: np.ndarray
    intents: list[Any]


def unit_vectors(reply: httpx.Response) -> np.ndarray:
    """Return the base64 vectors of an answer, scaled to length 1: float32 `[texts, dim]`."""
    written = [base64.b64decode(each) for each in reply.json()["vectors"]]
    vectors = np.array([np.frombuffer(each, "<f4") for each in written])
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


async def ask_known(http: httpx.AsyncClient) -> Known:
    """Request the vector and the intent of each known text."""
    texts = list(dict.fromkeys(filter(str.strip, LINES)))[:KNOWN]
    vectors, intents = [], []
    for text in texts:
        reply = await http.post("/encode", json={"texts": [text], "format": "base64"})
        vectors.append(unit_vectors(reply.raise_for_status())[0])
        reply = await http.post("/classify", json={"texts": [text]})
        if reply.status_code == 200:
            intents.append(reply.json()["answers"][0]["intent"])
    return Known(texts, np.array(vectors), intents)


def outcome(path: str, reply: httpx.Response, texts: list[str], place: int, known: Known) -> str:
    """Return the status of an answer, or what is wrong with it.

    Args:
      path: path of the request.
      reply: the answer.
      texts: texts of the request.
      place: index of the known text.
      known: the correct answers.
    """
    if reply.status_code != 200:
        return str(reply.status_code)
    number = known.texts.index(texts[place])
    if path == "/classify":
        answers = reply.json()["answers"]
        if [each["text"] for each in answers] != texts:
            return "wrong texts"
        return "200" if answers[place]["intent"] == known.intents[number] else "wrong intent"
    vectors = unit_vectors(reply)
    if len(vectors) != len(texts):
        return "incomplete"
    cosines = known.vectors @ vectors[place]
    is_right = cosines.argmax() == number and cosines[number] >= LEAST_COSINE
    return "200" if is_right else "wrong vector"


async def client(
    http: httpx.AsyncClient, known: Known, end: float, numbers: itertools.count, seed: int
) -> tuple[Counter[str], list[float]]:
    """Run one client until `end`; return counts of outcomes, and the seconds of each request."""
    choices = random.Random(seed)
    outcomes: Counter[str] = Counter()
    seconds = []
    while time.monotonic() < end:
        texts = [
            " ".join([*choices.choices(WORDS, k=choices.randint(3, 15)), str(next(numbers))])
            for _ in range(choices.randint(1, 4))
        ]
        place = choices.randrange(len(texts))
        texts[place] = choices.choice(known.texts)
        path = choices.choice(["/encode", "/classify"] if known.intents else ["/encode"])
        body = {"texts": texts, **({"format": "base64"} if path == "/encode" else {})}
        started = time.monotonic()
        try:
            reply = await http.post(path, json=body)
            seconds.append(time.monotonic() - started)
            said = outcome(path, reply, texts, place, known)
            outcomes[f"{path} {said}"] += 1
            outcomes["texts"] += len(texts) * (said == "200")
        except httpx.HTTPError as error:
            seconds.append(time.monotonic() - started)
            outcomes[f"lost ({type(error).__name__})"] += 1
    return outcomes, seconds


def resident_mb(pid: int | None) -> float:
    """Return the resident memory of a process in MB, or NaN if `pid` is None."""
    if pid is None:
        return float("nan")
    status = Path(f"/proc/{pid}/status").read_text()
    kib = next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)
    return kib * 1024 / 1e6


async def watch_memory(pid: int | None, seconds: float) -> list[float]:
    """Return the resident memory of a process after each tenth of the time."""
    found = []
    for _ in range(10):
        await asyncio.sleep(seconds / 10)
        found.append(resident_mb(pid))
    return found


async def load(url: str, *, clients: int, seconds: float, pid: int | None) -> None:
    """Send requests from several clients at once, and print the results."""
    numbers = itertools.count()
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as http:
        known = await ask_known(http)
        end = time.monotonic() + seconds
        memory = asyncio.create_task(watch_memory(pid, seconds))
        found = await asyncio.gather(
            *(client(http, known, end, numbers, n) for n in range(clients))
        )
        outcomes = sum((outcomes for outcomes, _ in found), Counter())
        latencies = np.concatenate([own for _, own in found])
        texts = outcomes.pop("texts", 0)
        print(f"{clients} clients, {seconds:.0f} s: {dict(outcomes)}, {texts:,} texts")
        print(f"{len(latencies) / seconds:.0f} requests/s, {texts / seconds:.0f} texts/s")
        for share in (50, 95, 99, 100):
            print(f"{share} % within {1000 * np.percentile(latencies, share):.0f} ms")
        print("resident MB:", " ".join(f"{each:.0f}" for each in await memory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pid", type=int, help="process id of the service, to watch its memory")
    given = parser.parse_args()
    asyncio.run(load(given.url, clients=given.clients, seconds=60 * given.minutes, pid=given.pid))


if __name__ == "__main__":
    main()
