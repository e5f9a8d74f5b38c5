"""The nursery story, told as it happens.

    python story.py [--yes] [--data-dir FOLDER] [--model PROVIDER:NAME]

In its first half (`gardener.py`) an agent asks before it changes something, and goes on after an accident. In its
second (`tagger.py`) an agent is told what it did wrong, and nothing changes before a person says so.

Everything goes through the public gRPC API. The story ends with 0 only if all of it came out as told. On a model of
one's own its words are its own: what the services promise is held to all the same.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from examples.nursery.following import HalesConsole
from examples.nursery.gardener import Gardener
from examples.nursery.stage import Person, Stage, set_up
from examples.nursery.tagger import Tagger
from examples.nursery.terminal import StoryError, Terminal, expect
from tutelage import TutelageError
from tutelage.service_process import StartError


async def tell(stage: Stage, terminal: Terminal) -> None:
    """Tell the whole of it."""
    fern = await stage.person("fern", "builds")
    gus = await stage.person("gus", "uses")
    hale = await stage.person("hale", "uses", "supervises", "teaches")
    console = HalesConsole(hale.runtime, terminal)
    terminal.title("A nursery, its notes, and two agents")
    terminal.tell(f"The runtime serves at {stage.runtime.address}, the teaching service at {stage.teaching.address}.")
    terminal.tell(f"The notes are in {stage.notes}.")
    await stage.start_host()
    await stage.tools_on_offer(gus.runtime)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(console.watch())
        await tell_of_the_gardener(Gardener(stage, terminal, console, gus, hale), terminal, fern)
        await tell_of_the_tagger(Tagger(stage, terminal, console, gus, hale), terminal, fern)
        watching.cancel()


async def tell_of_the_gardener(gardener: Gardener, terminal: Terminal, fern: Person) -> None:
    """Tell the first half."""
    await gardener.begin(fern)
    terminal.title("1. It asks before it writes")
    await gardener.merge("groceries.md", "todo.md", meant=True)
    terminal.title("2. A no is an answer")
    await gardener.merge("ideas.md", "plans.md", meant=False)
    terminal.title("3. The host dies between its effect and its result")
    await gardener.accident("seeds.md", "spring.md", run_again=False)
    terminal.title("4. Once more, and it runs again")
    await gardener.accident("watering.md", "summer.md", run_again=True)
    await gardener.sum_up()


async def tell_of_the_tagger(tagger: Tagger, terminal: Terminal, fern: Person) -> None:
    """Tell the second half."""
    await tagger.begin(fern)
    terminal.title("5. A tag with the Latin name alone")
    await tagger.write_the_first_tag()
    terminal.title("6. Gus corrects it, and nothing changes")
    await tagger.correct()
    terminal.title("7. Who teaches makes it active")
    if await tagger.activate(meant=True):
        terminal.title("8. The next tag is right, and both can be explained")
        await tagger.write_the_next_tag()
        terminal.title("9. Taken back, while a yes is asked for")
        await tagger.roll_back_while_it_waits(meant=True)
        terminal.title("10. As before anybody taught it")
        await tagger.write_the_last_tag()
    await tagger.sum_up()


async def run(folder: Path, terminal: Terminal, model: str) -> None:
    """Set the stage, tell the story, and clear the stage, also when the terminal goes."""
    told = asyncio.current_task()
    assert told is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, told.cancel)
    async with set_up(folder, model) as stage:
        await tell(stage, terminal)
    for service in (stage.runtime, stage.teaching):
        expect(await service.ended() == 0, f"the {service.name} stopped cleanly")
    terminal.tell("All of it came out as told.")


def main(
    yes: Annotated[bool, typer.Option("--yes", help="Answer for the person, without a terminal.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where it plays. Left out: a folder that goes.")] = None,
    model: Annotated[str, typer.Option(help="What the agents run on, PROVIDER:NAME. Left out: scripts.")] = "",
) -> None:
    """Tell the nursery story."""
    terminal = Terminal(yes)
    if not yes and not sys.stdin.isatty():
        terminal.tell("There is no terminal to ask at. Use --yes, or make run YES=1.")
        raise SystemExit(2)
    folder = data_dir or Path(tempfile.mkdtemp(prefix="nursery-"))
    try:
        asyncio.run(run(folder, terminal, model))
    except (StoryError, StartError, TutelageError, TimeoutError, ExceptionGroup) as failure:
        first = failure.exceptions[0] if isinstance(failure, ExceptionGroup) else failure
        terminal.tell(f"{type(first).__name__}: {first}")
        terminal.tell(f"The logs are in {folder}.")
        raise SystemExit(1) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise SystemExit(130) from None
    if data_dir is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    typer.run(main)
