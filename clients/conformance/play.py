#!/usr/bin/env python3
"""Plays the scenarios with the driver of each language, several at once, and prints their table.

    play.py [options] LANGUAGE=COMMAND...

For each language, COMMAND starts its driver. DISTKV_NODE_BIN names the node's program. `run.sh` beside this file
builds the drivers and the node, and calls this."""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import sys
import time
import tomllib
from dataclasses import dataclass, field

from scenario import HERE, LANGUAGES, Driver, Scenario, WrongError

PATIENCE = 120.0
"""Seconds for one scenario; a storm's own time comes on top."""
RETRIES_OF_PLANTED = 3
"""A deviation that shows by chance has so many chances."""


@dataclass
class Result:
    """How one scenario went with one language."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Player:
    """Plays scenarios; each worker has one driver for each language."""

    def __init__(self, commands: dict[str, str], storm: float | None) -> None:
        self.commands = commands
        self.storm = storm
        self.results: dict[tuple[str, str], Result] = {}

    async def play_all(self, jobs: list[tuple[str, Scenario]], workers: int) -> None:
        """All of these, with so many workers."""
        queue = list(reversed(jobs))
        await asyncio.gather(*(self._work(queue) for _ in range(workers)))

    async def _work(self, queue: list[tuple[str, Scenario]]) -> None:
        drivers: dict[str, Driver] = {}
        try:
            while queue:
                language, scenario = queue.pop()
                result = self.results.setdefault((language, scenario.file.stem), Result())
                driver = drivers.pop(language, None) or Driver(self.commands[language])
                started = time.monotonic()
                try:
                    await self.play_one(scenario, driver, language)
                    result.passed += 1
                    drivers[language] = driver
                except (WrongError, TimeoutError) as error:
                    told = str(error) or f"it took more than {PATIENCE:.0f} s"
                    result.failed.append(f"{language}: {scenario.file.stem}: {told}\n{driver.log()}")
                    driver.stop()
                result.seconds += time.monotonic() - started
        finally:
            for driver in drivers.values():
                driver.stop()

    async def play_one(self, scenario: Scenario, driver: Driver, language: str) -> None:
        """One of them. Raises :class:`WrongError` or `TimeoutError`."""
        limit = PATIENCE + 4 * (self.storm or 0)
        await asyncio.wait_for(scenario.play(driver, language, self.storm), limit)


def cell(scenario: Scenario, language: str) -> str:
    """What the table in the README says of a scenario that passes."""
    if not scenario.is_for(language):
        return "–"  # noqa: RUF001
    told = ["✓"]
    if left_out := scenario.left_out(language):
        told.append(f"{left_out} left out")
    if differ := scenario.differ(language):
        told.append(f"{differ} otherwise")
    return ", ".join(told)


def rows(scenarios: list[Scenario], languages: list[str]) -> list[str]:
    """The rows of that table."""
    made = []
    for one in scenarios:
        cells = [str(one.number), one.title, "real" if one.is_real else "scripted"]
        made.append("| " + " | ".join(cells + [cell(one, language) for language in languages]) + " |")
    return made


def print_table(player: Player, scenarios: list[Scenario]) -> None:
    """What was played, and how it went."""
    languages = list(player.commands)
    print("| | scenario | " + " | ".join(languages) + " |\n|---|---|" + "---|" * len(languages))
    for scenario in scenarios:
        cells = []
        for language in languages:
            result = player.results.get((language, scenario.file.stem))
            if result is None:
                cells.append("–")  # noqa: RUF001
                continue
            times = f"{result.seconds / max(result.passed + len(result.failed), 1):.1f} s"
            word = cell(scenario, language) if not result.failed else f"FAILED {len(result.failed)}"
            runs = f" {result.passed} times," if result.passed > 1 else ""
            cells.append(f"{word}{runs} {times}")
        print(f"| {scenario.number} | {scenario.title} | " + " | ".join(cells) + " |")


async def play_planted(player: Player, scenarios: list[Scenario], workers: int) -> int:
    """Each planted deviation must be found by its scenario, in each language that has it. How many were not."""
    told = tomllib.loads((HERE / "deviations.toml").read_text())["deviation"]
    by_stem = {scenario.file.stem: scenario for scenario in scenarios}
    queue = [
        (language, one["name"], by_stem[one["found_by"]])
        for one in told
        for language in one["languages"]
        if language in player.commands
    ]
    count = len(queue)
    missed: list[str] = []

    async def work() -> None:
        while queue:
            language, name, scenario = queue.pop()
            for _ in range(RETRIES_OF_PLANTED):
                driver = Driver(player.commands[language], planted=name)
                try:
                    await player.play_one(scenario, driver, language)
                except (WrongError, TimeoutError) as error:
                    why = (str(error).strip().splitlines() or ["time is up"])[-1]
                    print(f"{language}: {name!r} is found by {scenario.file.stem}: {why:.150}")
                    break
                finally:
                    driver.stop()
            else:
                missed.append(f"{language}: {name!r} is not found by {scenario.file.stem}")

    await asyncio.gather(*(work() for _ in range(workers)))
    print("\n".join(missed))
    print(f"{count - len(missed)} of {count} planted deviations were found")
    return len(missed)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver", nargs="+", metavar="LANGUAGE=COMMAND")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="scenarios by their files' names, like '3*'")
    parser.add_argument("--workers", type=int, default=4, help="scenarios that are played at once (4)")
    parser.add_argument("--runs", type=int, default=1, help="how often each is played (1)")
    parser.add_argument("--storm", type=float, metavar="SECONDS", help="a longer storm, and one at random nodes")
    parser.add_argument("--planted", action="store_true", help="break one rule at a time: each must be found")
    args = parser.parse_args()
    commands = dict(driver.split("=", 1) for driver in args.driver)
    scenarios = [Scenario(file) for file in sorted((HERE / "scenarios").glob("*.toml"))]
    if len({scenario.title for scenario in scenarios}) != len(scenarios):
        parser.error("two scenarios have one title")
    readme = (HERE / "README.md").read_text()
    missing = [row for row in rows(scenarios, list(LANGUAGES)) if row not in readme]
    if missing:
        print("the table in clients/conformance/README.md lacks:\n" + "\n".join(missing), file=sys.stderr)
    player = Player(commands, args.storm)
    if args.planted:
        return 1 if asyncio.run(play_planted(player, scenarios, args.workers)) else 0
    chosen = [s for s in scenarios if not args.only or any(fnmatch.fnmatch(s.file.stem, p) for p in args.only)]
    jobs = [(of, s) for _ in range(args.runs) for s in chosen for of in commands if s.is_for(of)]
    started = time.monotonic()
    asyncio.run(player.play_all(jobs, args.workers))
    took = time.monotonic() - started
    failures = [text for result in player.results.values() for text in result.failed]
    for text in failures:
        print(f"\n== {text}")
    print()
    print_table(player, chosen)
    for language in commands:
        own = [result.seconds for (of, _), result in player.results.items() if of == language]
        print(f"{language}: {sum(own):.1f} s, were its scenarios played one after the other")
    passed = sum(result.passed for result in player.results.values())
    failed = len(failures) + bool(missing)
    print(f"{passed} passed" + (f", {failed} failed" if failed else "") + f" in {took:.2f}s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
