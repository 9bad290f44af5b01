"""Rate limits of one key or address: token buckets, a number at once, a daily quota. Pure; the clock is handed in.

A bucket holds a minute's worth and refills evenly, so a client may burst and is then held to its rate. Tokens are taken as
an estimate when a request begins and corrected when it ends, since nobody knows before how long an answer gets.
"""

from __future__ import annotations

from msgspec import Struct

from localllm.core.errors import QuotaExceeded, RateLimited

WINDOW_SECONDS = 60.0
DAY_SECONDS = 86_400.0


class Limits(Struct, frozen=True, kw_only=True):
    """None = unlimited. ``requests`` and ``tokens`` are per minute, ``daily_tokens`` per UTC day."""

    requests: int | None = None
    tokens: int | None = None
    concurrent: int | None = None
    daily_tokens: int | None = None


class Remaining(Struct, frozen=True, kw_only=True):
    """What ``x-ratelimit-*`` headers say; None where there is no limit. Resets are seconds until the bucket is full."""

    requests_limit: int | None = None
    requests_left: int | None = None
    requests_reset_s: float | None = None
    tokens_limit: int | None = None
    tokens_left: int | None = None
    tokens_reset_s: float | None = None


class Bucket:
    """Holds at most ``capacity`` and refills to it within ``WINDOW_SECONDS``. May go below zero when corrected."""

    def __init__(self, capacity: int, now: float) -> None:
        self.capacity = capacity
        self._level = float(capacity)
        self._at = now

    def level(self, now: float) -> float:
        if now > self._at:
            self._level = min(self.capacity, self._level + (now - self._at) * self.capacity / WINDOW_SECONDS)
            self._at = now
        return self._level

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until ``amount`` can be taken; 0 now. More than the capacity is let through once it is full."""
        missing = min(amount, self.capacity) - self.level(now)
        return max(0.0, missing * WINDOW_SECONDS / self.capacity)

    def take(self, amount: float, now: float) -> None:
        """Take it, whatever the level: check ``wait_s`` before. A negative amount gives back."""
        self._level = min(self.capacity, self.level(now) - amount)

    def full_in_s(self, now: float) -> float:
        return (self.capacity - self.level(now)) * WINDOW_SECONDS / self.capacity


class Meter:
    """One client's use against its limits. ``now`` is monotonic seconds, ``day`` the number of the UTC day."""

    def __init__(self, limits: Limits, now: float) -> None:
        self.limits = limits
        self.running = 0
        self._requests = Bucket(limits.requests, now) if limits.requests else None
        self._tokens = Bucket(limits.tokens, now) if limits.tokens else None
        self._day = -1
        self._used_today = 0

    def begin(self, estimated_tokens: int, *, now: float, day: int) -> None:
        """Admit one request or refuse it; nothing is taken when it is refused.

        Raises:
            RateLimited: too many requests, tokens or requests at once; ``retry_after_s`` says when there is room.
            QuotaExceeded: today's tokens are used up.
        """
        self._turn(day)
        limits = self.limits
        if limits.daily_tokens is not None and self._used_today >= limits.daily_tokens:
            raise QuotaExceeded(
                f"This key's {limits.daily_tokens} tokens for today are used up.",
                retry_after_s=None,
                hint="The quota starts anew at midnight UTC.",
            )
        if limits.concurrent is not None and self.running >= limits.concurrent:
            raise RateLimited(f"This key already has {self.running} requests running.", retry_after_s=1.0)
        for bucket, amount, what in (
            (self._requests, 1.0, "requests"),
            (self._tokens, float(estimated_tokens), "tokens"),
        ):
            if bucket is not None and (wait := bucket.wait_s(amount, now)) > 0:
                raise RateLimited(f"This key may use {bucket.capacity} {what} a minute.", retry_after_s=wait)
        if self._requests is not None:
            self._requests.take(1, now)
        if self._tokens is not None:
            self._tokens.take(estimated_tokens, now)
        self.running += 1

    def end(self, estimated_tokens: int, used_tokens: int, *, now: float, day: int) -> None:
        """A request that was admitted ended: correct the estimate by what it used."""
        self._turn(day)
        self.running -= 1
        self._used_today += used_tokens
        if self._tokens is not None:
            self._tokens.take(used_tokens - estimated_tokens, now)

    def remaining(self, now: float) -> Remaining:
        requests, tokens = self._requests, self._tokens
        return Remaining(
            requests_limit=self.limits.requests,
            requests_left=max(0, int(requests.level(now))) if requests else None,
            requests_reset_s=requests.full_in_s(now) if requests else None,
            tokens_limit=self.limits.tokens,
            tokens_left=max(0, int(tokens.level(now))) if tokens else None,
            tokens_reset_s=tokens.full_in_s(now) if tokens else None,
        )

    def _turn(self, day: int) -> None:
        if day != self._day:
            self._day, self._used_today = day, 0
