"""Choosing the next token from a row of logits, with numpy on llama.cpp's own buffer.

llama.cpp's sampler chain first builds an array of one struct per vocabulary entry; with a vocabulary of 262,144 that
costs more than the choice. Here the row is read in place and cut to a few candidates at once. The meaning and order
of the steps are llama.cpp's (``common/sampling.cpp``, ``src/llama-sampler.cpp``): bias, penalties, DRY, top-n-sigma,
top-k, typical-p, top-p, min-p, XTC, temperature; or Mirostat instead of everything from top-n-sigma on. Rows are
scribbled on: take log probabilities before sampling.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from localllm.core.errors import GenerationFailed
from localllm.core.generation import Sampling

_COLUMNS = 1024
"""Width of the strided maxima that bound the k-th largest logit: 256 rows of 1,024 at a vocabulary of 262,144."""
_HEAD = 512
"""Candidates looked at first when top-p has no top-k before it."""
_DRY_LONGEST = 64

Ids = NDArray[np.intp]
Floats = NDArray[np.float32]


class Mask(Protocol):
    """What a grammar is to the sampler."""

    def allows(self, token: int) -> bool: ...
    def mask(self, logits: Floats) -> None: ...
    def accept(self, token: int) -> None: ...


class AfterMarker:
    """A mask that binds only what comes after a marker, such as the end of a thought."""

    def __init__(self, mask: Mask, marker: bytes, piece: Callable[[int], bytes]) -> None:
        self._mask = mask
        self._marker = marker
        self._piece = piece
        self._end = b""
        self._binds = False

    def allows(self, token: int) -> bool:
        return not self._binds or self._mask.allows(token)

    def mask(self, logits: Floats) -> None:
        self._mask.mask(logits)

    def accept(self, token: int) -> None:
        if self._binds:
            self._mask.accept(token)
            return
        self._end += self._piece(token)
        self._binds = self._marker in self._end
        self._end = self._end[-len(self._marker) :]


class Settings(Struct, frozen=True, kw_only=True):
    """Sampling with every value decided; the defaults are llama.cpp's."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1


def resolve(asked: Sampling, model_defaults: dict[str, float] | None = None) -> Settings:
    """Fill what a request leaves open: first from the model's own recommendation, then from llama.cpp's defaults."""
    values: dict[str, float] = dict(model_defaults or {})
    for name in Settings.__struct_fields__:
        value = getattr(asked, name)
        if value is not None:
            values[name] = value
    return msgspec.convert(values, Settings, strict=False)


def top_k_ids(row: Floats, k: int) -> Ids:
    """Indices of the ``k`` largest logits, in no order (0.1 ms of 262,144; a plain argpartition takes 2 ms).

    The k-th largest of the maxima of 1,024 strided groups is no larger than the k-th largest logit, so only what
    reaches it can be among the first k.
    """
    size = len(row)
    if k >= size:
        return np.arange(size)
    if k * 4 <= _COLUMNS <= size // 4:
        whole = size - size % _COLUMNS
        maxima = row[:whole].reshape(-1, _COLUMNS).max(axis=0)
        bound = np.partition(maxima, _COLUMNS - k)[_COLUMNS - k]
        ids = np.flatnonzero(row >= bound)
        if len(ids) <= k:
            return ids
        return ids[np.argpartition(row[ids], len(ids) - k)[len(ids) - k :]]
    return np.argpartition(row, size - k)[size - k :]


def log_probabilities(row: Floats, token: int, count: int) -> tuple[float, list[tuple[int, float]]]:
    """Natural-log probability of ``token`` and the ``count`` likeliest tokens, before any sampling step."""
    peak = float(row.max())
    total = peak + math.log(float(np.exp(row - peak).sum(dtype=np.float64)))
    best: list[tuple[int, float]] = []
    if count:
        ids = top_k_ids(row, count)
        ids = ids[np.argsort(-row[ids], kind="stable")]
        best = [(int(i), float(row[i]) - total) for i in ids]
    return float(row[token]) - total, best


class Sampler:
    """Chooses the tokens of one answer. ``history`` starts as the end of the prompt, as llama.cpp's penalties want.

    ``breaks`` says whether a token ends a DRY sequence (its text has a line break, colon, quote or star).
    """

    def __init__(
        self,
        settings: Settings,
        *,
        seed: int | None = None,
        bias: dict[int, float] | None = None,
        history: Sequence[int] = (),
        grammar: Mask | None = None,
        breaks: Callable[[int], bool] = lambda token: False,
    ) -> None:
        self.settings = settings
        self.grammar = grammar
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._breaks = breaks
        bias = bias or {}
        self._bias_ids = np.array(list(bias), np.intp)
        self._bias_values = np.array(list(bias.values()), np.float32)
        self._penalises = settings.repeat_last_n != 0 and (
            settings.repeat_penalty != 1.0
            or settings.presence_penalty != 0
            or settings.frequency_penalty != 0
        )
        self._dries = settings.dry_multiplier > 0 and settings.dry_penalty_last_n != 0
        longest = self._history_length()
        self._history: deque[int] = deque(history, maxlen=longest)
        self._mirostat_mu = 2.0 * settings.mirostat_tau
        self._plain_greedy = (
            settings.temperature <= 0 and not (bias or self._penalises or self._dries) and grammar is None
        )

    def sample(self, row: Floats) -> int:
        """The next token. ``row`` is changed.

        Raises:
            GenerationFailed: the logits are not numbers, or the grammar leaves nothing to say.
        """
        if self._plain_greedy:
            token = int(row.argmax())
        else:
            if math.isnan(row.max()):
                raise _not_a_number()
            self._adjust(row)
            token = self._choose(row)
            if self.grammar is not None and not self.grammar.allows(token):
                self.grammar.mask(row)
                token = self._choose(row)
        if math.isnan(row[token]):
            raise _not_a_number()
        if math.isinf(row[token]):
            raise GenerationFailed("Neither the grammar nor the biases leave a token to say.")
        return token

    def accept(self, token: int, *, end: bool = False) -> None:
        """Remember the token that was used; ``end`` tokens are nothing a grammar would want to see."""
        if self._penalises or self._dries:
            self._history.append(token)
        if self.grammar is not None and not end:
            self.grammar.accept(token)

    # ------------------------------------------------------------ steps on the whole row

    def _history_length(self) -> int | None:
        """How many tokens to remember; None = all."""
        settings = self.settings
        wanted = [settings.repeat_last_n] if self._penalises else []
        wanted += [settings.dry_penalty_last_n] if self._dries else []
        return None if any(n < 0 for n in wanted) else max(wanted, default=0)

    def _adjust(self, row: Floats) -> None:
        if len(self._bias_ids):
            row[self._bias_ids] += self._bias_values
        if self._penalises:
            self._penalise(row)
        if self._dries:
            self._dry(row)

    def _penalise(self, row: Floats) -> None:
        settings = self.settings
        counts = Counter(_last(self._history, settings.repeat_last_n))
        if not counts:
            return
        ids = np.fromiter(counts.keys(), np.intp, len(counts))
        times = np.fromiter(counts.values(), np.float32, len(counts))
        values = row[ids]
        penalty = np.float32(settings.repeat_penalty)
        values = np.where(values <= 0, values * penalty, values / penalty)
        row[ids] = values - times * settings.frequency_penalty - settings.presence_penalty

    def _dry(self, row: Floats) -> None:
        """Penalise each token that would lengthen a repetition, by how long it already is."""
        settings = self.settings
        history = _last(self._history, settings.dry_penalty_last_n)
        if len(history) < 2 or self._breaks(history[-1]):
            return
        longest: dict[int, int] = {}
        for at in range(len(history) - 1):
            if history[at] != history[-1]:
                continue
            length = 1
            while (
                length < min(at + 1, _DRY_LONGEST)
                and history[at - length] == history[-1 - length]
                and not self._breaks(history[at - length])
            ):
                length += 1
            following = history[at + 1]
            longest[following] = max(longest.get(following, 0), length)
        for token, length in longest.items():
            if length >= settings.dry_allowed_length:
                excess = length - settings.dry_allowed_length
                row[token] -= settings.dry_multiplier * settings.dry_base**excess

    # ------------------------------------------------------------ the choice

    def _choose(self, row: Floats) -> int:
        settings = self.settings
        if settings.temperature <= 0:
            return int(row.argmax())
        if settings.mirostat:
            return self._mirostat(row)
        ids = self._candidates(row)
        if ids is None:
            return self._draw_from_all(row)
        values = row[ids]
        if settings.xtc_probability > 0:
            ids, values = self._xtc(ids, values)
        return int(ids[self._draw(values / np.float32(settings.temperature))])

    def _candidates(self, row: Floats) -> Ids | None:
        """What the cuts leave, likeliest first; None = every token."""
        settings = self.settings
        if settings.top_n_sigma > 0:
            finite = row[np.isfinite(row)]
            row[row < finite.max() - settings.top_n_sigma * finite.std()] = -np.inf
        cuts = settings.typical_p < 1 or settings.top_p < 1 or settings.xtc_probability > 0
        if settings.top_k > 0:
            ids = _sorted(row, top_k_ids(row, settings.top_k))
            normaliser = None
        elif cuts:
            ids, normaliser = self._head(row)
        elif settings.min_p > 0:
            return np.flatnonzero(row >= row.max() + np.float32(math.log(settings.min_p)))
        else:
            return None
        values = row[ids]
        if settings.typical_p < 1:
            keep = _typical(values, settings.typical_p)
            ids, values, normaliser = ids[keep], values[keep], None
        if settings.top_p < 1:
            sums = np.cumsum(_probabilities(values, normaliser))
            kept = int(np.searchsorted(sums, settings.top_p)) + 1
            ids, values = ids[:kept], values[:kept]
        if settings.min_p > 0:
            ids = ids[values >= values.max() + np.float32(math.log(settings.min_p))]
        return ids

    def _head(self, row: Floats) -> tuple[Ids, float | None]:
        """The likeliest tokens, enough of them for top-p, and the log-sum-exp of the whole row."""
        settings = self.settings
        if settings.typical_p < 1 or settings.top_p >= 1:
            return _sorted(row, np.arange(len(row))), None
        peak = float(row.max())
        normaliser = peak + math.log(float(np.exp(row - peak).sum(dtype=np.float64)))
        size = _HEAD // 2
        while True:
            ids = _sorted(row, top_k_ids(row, size))
            if len(ids) == len(row) or _probabilities(row[ids], normaliser).sum() >= settings.top_p:
                return ids, normaliser
            size *= 8

    def _xtc(self, ids: Ids, values: Floats) -> tuple[Ids, Floats]:
        """Exclude top choices: now and then drop every token above the threshold but the least likely of them."""
        if self._random.random() >= self.settings.xtc_probability:
            return ids, values
        order = np.argsort(-values, kind="stable")
        ids, values = ids[order], values[order]
        above = int((_probabilities(values) >= self.settings.xtc_threshold).sum())
        return (ids[above - 1 :], values[above - 1 :]) if above >= 2 else (ids, values)

    def _draw(self, values: Floats) -> int:
        sums = np.cumsum(np.exp((values - values.max()).astype(np.float64)))
        at = int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))
        return min(at, len(sums) - 1)

    def _draw_from_all(self, row: Floats) -> int:
        return self._draw(row / np.float32(self.settings.temperature))

    def _mirostat(self, row: Floats) -> int:
        """Mirostat 1 and 2: keep the surprise of the text near tau (Basu et al. 2021)."""
        settings = self.settings
        values = row / np.float32(settings.temperature)
        ids = _sorted(values, np.arange(len(values)))
        chances = _probabilities(values[ids])
        if settings.mirostat == 1:
            kept = _mirostat_k(chances, self._mirostat_mu)
        else:
            with np.errstate(divide="ignore"):
                kept = max(1, int(np.searchsorted(-np.log2(chances), self._mirostat_mu, side="right")))
        chances = chances[:kept] / chances[:kept].sum()
        at = min(int(np.searchsorted(np.cumsum(chances), self._random.random(), side="right")), kept - 1)
        surprise = -math.log2(chances[at])
        self._mirostat_mu -= settings.mirostat_eta * (surprise - settings.mirostat_tau)
        return int(ids[at])


def _not_a_number() -> GenerationFailed:
    return GenerationFailed(
        "The model's output is not a number.",
        hint="The file may be damaged: verify its checksum, or pull it again.",
    )


def _last(history: deque[int], count: int) -> list[int]:
    items = list(history)
    return items if count < 0 else items[-count:]


def _sorted(row: Floats, ids: Ids) -> Ids:
    return ids[np.argsort(-row[ids], kind="stable")]


def _probabilities(values: Floats, normaliser: float | None = None) -> NDArray[np.float64]:
    """Softmax of ``values``; against the whole row's log-sum-exp when one is given."""
    exact = values.astype(np.float64)
    if normaliser is None:
        normaliser = exact.max() + math.log(np.exp(exact - exact.max()).sum())
    chances: NDArray[np.float64] = np.exp(exact - normaliser)
    return chances


def _typical(values: Floats, mass: float) -> Ids:
    """Locally typical sampling (Meister et al. 2022): nearest to the expected surprise first."""
    chances = _probabilities(values)
    surprise = -np.log(np.maximum(chances, 1e-300))
    entropy = float((chances * surprise).sum())
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    kept = int(np.searchsorted(np.cumsum(chances[order]), mass, side="right")) + 1
    return np.sort(order[:kept])


def _mirostat_k(chances: NDArray[np.float64], mu: float, m: int = 100) -> int:
    """How many tokens Mirostat 1 keeps: from the Zipf exponent of the likeliest ``m``."""
    top = chances[:m]
    steps = np.arange(len(top) - 1)
    ratios = np.log((steps + 2) / (steps + 1))
    drops = np.log(np.maximum(top[:-1], 1e-300) / np.maximum(top[1:], 1e-300))
    exponent = float((ratios * drops).sum() / max(float((ratios * ratios).sum()), 1e-9))
    epsilon = exponent - 1
    if abs(epsilon) < 1e-9 or exponent <= 0:
        return max(1, min(len(chances), m))
    raw = (epsilon * 2.0**mu) / (1 - len(chances) ** -epsilon)
    k = raw ** (1 / exponent) if raw > 0 else 1.0
    return int(max(1, min(len(chances), round(k))))
