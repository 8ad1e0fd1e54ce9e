"""The one block size of a trace, and which sizes would fit where it does not."""

from collections.abc import Sequence

import numpy as np

from kvsim.traces.trace import TraceError

SAMPLE = 1000  # requests that a block size is looked for in
NO_LIMIT = 1 << 62


class BlockSize:
    """Tokens a block: those given, or stated in the file, or usual in the format.

    Parameters
    ----------
    given : int or None
        The option.
    usual : int
        Where nothing is given or stated.
    partial : bool
        Whether a chain always covers its prompt, a partial last block included; otherwise it may
        leave out tokens that fill no block.
    """

    def __init__(self, given: int | None, usual: int, *, partial: bool) -> None:
        self.tokens = given or usual
        self._given = given
        self._partial = partial
        self._settled = False
        self._stated = False
        self._lengths = np.empty(0, dtype=np.int64)
        self._inputs = np.empty(0, dtype=np.int64)

    def state(self, size: int | None, where: str) -> None:
        """Take what a row or session at `where` says; None if it says nothing.

        Raises
        ------
        TraceError
            If it is no size, or another one than before.
        """
        if size is not None and size < 1:
            raise TraceError(f"{where}: block_size is {size}; it must be at least 1 token")
        if not self._settled:
            self.tokens = self._given or size or self.tokens
            self._settled = True
        self._stated |= size is not None
        if size not in (None, self.tokens):
            how = " (--block-size)" if self._given else ""
            raise TraceError(
                f"{where}: block_size {size}; the trace is read with {self.tokens}{how}, "
                "and all its blocks must be of one size"
            )

    def check(
        self, lengths: np.ndarray, inputs: Sequence[int], where: Sequence[str], field: str
    ) -> None:
        """Hold the blocks of requests against their tokens.

        Parameters
        ----------
        lengths : int64[k]
            Blocks of each chain.
        inputs : sequence of int
            Tokens of each prompt.
        where : sequence of str
            "file:line" of each.
        field : str
            What the format calls the tokens.

        Raises
        ------
        TraceError
            If they do not fit; it says which block sizes would.
        """
        tokens = np.array(inputs, dtype=np.int64)
        floor, ceil = tokens // self.tokens, -(-tokens // self.tokens)
        wrong = (lengths != ceil) & (self._partial | (lengths != floor))
        if len(self._lengths) < SAMPLE:
            self._lengths = np.append(self._lengths, lengths)[:SAMPLE]
            self._inputs = np.append(self._inputs, tokens)[:SAMPLE]
        if not wrong.any():
            return
        at = int(np.argmax(wrong))
        need = (
            f"exactly {ceil[at]}"
            if self._partial
            else f"{floor[at]} (full blocks only) or {ceil[at]}"
        )
        raise TraceError(
            f"{where[at]}: {lengths[at]} hash_ids for {field} {tokens[at]}"
            f"{self._fitting(int(lengths[at]), int(tokens[at]))}; "
            f"blocks of {self.tokens} tokens need {need}"
        )

    def _fitting(self, length: int, tokens: int) -> str:
        """Name the block sizes that fit a request and the sample."""
        low, high = _sizes(
            np.append(self._lengths, length), np.append(self._inputs, tokens), self._partial
        )
        if low > high:
            return ", which fits no block size that fits the other requests"
        powers = [1 << n for n in range(62) if low <= 1 << n <= high]
        if high == NO_LIMIT:
            fit = f"{low} or more"
        elif powers:
            fit = ", ".join(map(str, powers))
        else:
            fit = str(low) if low == high else f"{low} to {high}"
        switch = "" if self._stated else " (--block-size)"
        return f" (sizes that fit the first {len(self._lengths)} requests: {fit}{switch})"


def _sizes(lengths: np.ndarray, tokens: np.ndarray, partial: bool) -> tuple[int, int]:
    """Return the smallest and the largest block size that fits all; smallest > largest if none."""
    low = -(-tokens // np.maximum(lengths, 1)) if partial else tokens // (lengths + 1) + 1
    high = np.where(lengths > 1, -(-tokens // np.maximum(lengths - 1, 1)) - 1, NO_LIMIT)
    impossible = (lengths > tokens) | (partial & (lengths == 0))
    return int(low.max()), 0 if impossible.any() else int(high.min())
