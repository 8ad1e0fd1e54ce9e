"""Run experiments on every trace at hand, or verify the committed results."""

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from kvsim.experiments import EXPERIMENTS
from kvsim.experiments.store import Experiment, difference
from kvsim.report.results import RESULTS
from kvsim.traces.opening import open_trace
from kvsim.traces.registry import SAMPLE, known_names, raw_folder
from kvsim.traces.trace import Trace, TraceError

VERIFY = "verify"
UNFINISHED = RESULTS.parent / "_build" / "unfinished"


def present(names: list[str] | None) -> list[Trace]:
    """Return the traces asked for, or all known ones at hand (the sample always is)."""
    if names:
        return [open_trace(name, window=None) for name in names]
    traces = []
    for name in known_names():
        try:
            traces.append(open_trace(name, window=None))
        except TraceError as error:
            if name == SAMPLE:
                raise
            print(f"{name}: left out, its results stay as they are ({error})", file=sys.stderr)
    if len(traces) == 1:
        print(f"no real trace in {raw_folder()}: running the embedded sample", file=sys.stderr)
    return traces


def run(experiment: Experiment, trace: Trace, results: Path, **other: Any) -> list[Path]:
    """Run one experiment on one trace and say how long it took."""
    print(f"{experiment.name}: {trace.name} ...", file=sys.stderr, flush=True)
    started = time.perf_counter()
    paths = experiment.run(trace, results, **other)
    seconds = time.perf_counter() - started
    print(f"{experiment.name}: {trace.name}, {seconds:.1f} s", file=sys.stderr, flush=True)
    return paths


def verify(experiments: list[Experiment], traces: list[Trace], results: Path, *, full: bool) -> int:
    """Recompute into a temporary folder and compare the data; return the exit code."""
    wrong: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        for experiment in experiments:
            for trace in traces:
                part = {} if full else experiment.part.get(trace.name, {})
                if part is None:
                    print(f"{experiment.name}: {trace.name} only with FULL=1", file=sys.stderr)
                elif experiment.applies(trace):
                    for path in run(experiment, trace, fresh, **part):
                        name = str(path.relative_to(fresh))
                        wrong[name] = difference(path, results / name, part=bool(part))
            # The text is made from what is committed, so that it covers traces not at hand.
            text = experiment.write_text_to(results, fresh)
            wrong[text.name] = difference(text, results / text.name)
    found = {name: what for name, what in wrong.items() if what}
    for name, what in found.items():
        print(f"differs: {name}: {what}", file=sys.stderr)
    how = "wholly" if full else "wholly or, where that takes long, in part (FULL=1: wholly)"
    print(f"verify: {len(wrong)} files recomputed {how}, {len(found)} differ")
    return 1 if found else 0


def main(
    name: Annotated[str, typer.Argument(help=f"{', '.join(EXPERIMENTS)}, all or {VERIFY}.")],
    trace: Annotated[list[str] | None, typer.Option(help="Only this trace (repeatable).")] = None,
    results: Annotated[Path, typer.Option(help="Folder of the results.")] = RESULTS,
    only: Annotated[
        list[str] | None, typer.Option(help="With verify: only this experiment (repeatable).")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="With verify: every row.")] = False,
) -> None:
    """Run an experiment on every trace at hand and store its results."""
    if name not in {*EXPERIMENTS, "all", VERIFY}:
        known = ", ".join([*EXPERIMENTS, "all", VERIFY])
        print(f"error: experiment {name!r} is unknown; known: {known}", file=sys.stderr)
        raise typer.Exit(2)
    chosen = [EXPERIMENTS[name]] if name in EXPERIMENTS else list(EXPERIMENTS.values())
    if only:
        chosen = [EXPERIMENTS[item] for item in only]
    traces = present(trace)
    if name == VERIFY:
        raise typer.Exit(verify(chosen, traces, results, full=full))
    for experiment in chosen:
        for opened in traces:
            if experiment.applies(opened):
                resume = {"resume": str(UNFINISHED)} if experiment.resumable else {}
                run(experiment, opened, results, **resume)
        experiment.write_text_to(results, results)


if __name__ == "__main__":
    try:
        typer.run(main)
    except TraceError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
