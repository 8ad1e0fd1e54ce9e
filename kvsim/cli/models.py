"""Command on models: what a token's keys and values weigh, by model; and the option `--model`."""

from typing import Annotated, Any

import typer

from kvsim.cli.options import CACHE, AsCsv, AsJson, Output
from kvsim.cli.output import writer
from kvsim.report.terminal import Sheet

ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        rich_help_panel=CACHE,
        help="Model whose KV bytes a memory capacity counts in (kvsim models), :fp8 or :int4 after "
        "the name for other precisions than bf16.",
    ),
]
MODEL_COLUMNS = {
    "name": "model",
    "bytes_per_token": "bytes\na token",
    "blocks_per_gib": "blocks\na GiB",
    "checkpoint_bytes": "bytes a\ncheckpoint",
    "window_bytes": "bytes of\nwindows",
    "source": "source",
}


def models(
    precision: Annotated[
        str, typer.Option(metavar="NAME", help="Of keys and values: bf16, fp8 or int4.")
    ] = "bf16",
    block_size: Annotated[int, typer.Option(min=1, metavar="TOKENS", help="Tokens a block.")] = 64,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    output: Output = None,
) -> None:
    """List models: KV bytes a token, blocks a GiB, and where the figures come from."""
    write = writer(as_json, as_csv, output)
    table = rows(precision, block_size)
    wrapping = frozenset({"source"})
    write(table, Sheet("Models", table, MODEL_COLUMNS, keys=1, wrapping=wrapping))


def token_bytes(bytes_per_token: float | None, model: str | None) -> float | str | None:
    """Return the one of the two options that was given.

    Raises
    ------
    typer.TyperException
        If both were.
    """
    if bytes_per_token is not None and model is not None:
        raise typer.TyperException("--bytes-per-token and --model exclude each other")
    return bytes_per_token if model is None else model


def rows(precision: str, block_size: int) -> list[dict[str, Any]]:
    """Return a row a model: bytes a token of a long prompt, blocks a GiB, and what comes on top.

    Parameters
    ----------
    precision : str
        A name of `kvsim.cache.models.PRECISIONS`.
    block_size : int
        Tokens of a block.
    """
    from kvsim.cache import models as catalogue

    return [
        {
            "name": name,
            "bytes_per_token": model.bytes_per_token(precision),
            "blocks_per_gib": round(model.blocks_per_gib(block_size, precision), 2),
            "checkpoint_bytes": model.checkpoint_bytes,
            "window_bytes": model.window_bytes(precision),
            "layers": model.layers,
            "weights": model.weights,
            "parameters": model.total,
            "source": model.source,
            "checked": model.checked,
        }
        for name, model in catalogue.models().items()
    ]
