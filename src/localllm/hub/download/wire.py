"""The HTTP rules of a download: whom the token may be shown, where a redirect may lead, what an answer means.

httpx does the talking; redirects are followed here, by hand, since the token must not follow them to another host and a
model's name must not be able to point us at a machine in the local network.
"""

from __future__ import annotations

import asyncio
import email.utils
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Literal
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from localllm._version import __version__
from localllm.core.errors import DownloadFailed, Gated, NotFound, Offline, RateLimited

MAX_REDIRECTS = 8
CONNECT_SECONDS = 15.0
STALL_SECONDS = 30.0
MAX_RETRY_AFTER_SECONDS = 300.0
SMALL_ATTEMPTS = 3
MAX_SMALL_PAUSE_SECONDS = 10.0
_CONTENT_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15}|\*)")
_REDIRECTS = (301, 302, 303, 307, 308)


def new_client(*, stall_seconds: float = STALL_SECONDS) -> httpx.AsyncClient:
    """A client with our limits; proxies and extra CAs come from the environment (HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE)."""
    return httpx.AsyncClient(
        headers={"User-Agent": f"localllm/{__version__}", "Accept-Encoding": "identity"},
        timeout=httpx.Timeout(stall_seconds, connect=CONNECT_SECONDS),
        limits=httpx.Limits(max_connections=32, max_keepalive_connections=8),
        follow_redirects=False,
        verify=system_trust(),
    )


def system_trust() -> ssl.SSLContext:
    """The operating system's certificates (and SSL_CERT_FILE / SSL_CERT_DIR); httpx's own bundle where there are none."""
    context = ssl.create_default_context()
    if not context.get_ca_certs() and not context.cert_store_stats()["x509_ca"]:
        return httpx.create_ssl_context()
    return context


def origin(url: str) -> str:
    """``host:port`` of a URL, the unit of trust. Raises DownloadFailed when it has no host."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise DownloadFailed(f"{url.partition('?')[0][:120]!r} is no web address.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DownloadFailed(f"{url.partition('?')[0][:120]!r} is no web address.")
    return f"{parts.hostname}:{port}"


@asynccontextmanager
async def follow(
    client: httpx.AsyncClient,
    url: str,
    *,
    headers: Mapping[str, str],
    token: str | None,
    trusted: Collection[str],
    method: Literal["GET", "HEAD"] = "GET",
    stay: bool = False,
) -> AsyncIterator[httpx.Response]:
    """A request with redirects; the body is not read yet. ``token`` goes to the first origin only.

    ``trusted`` are origins that may lie inside this network. With ``stay``, a redirect to another origin is not
    followed but given back as the answer.

    Raises:
        DownloadFailed: too many redirects, one to a place that is not allowed, or the line broke.
        Offline: the host cannot be reached.
    """
    home = url
    for _ in range(MAX_REDIRECTS):
        await forbid_private(url, trusted=trusted)
        sent = dict(headers)
        if token is not None and same_place(url, home):
            sent["Authorization"] = f"Bearer {token}"
        with network_errors(url):
            response = await client.send(client.build_request(method, url, headers=sent), stream=True)
        target = redirect_target(response, url) if response.status_code in _REDIRECTS else None
        if target is None or (stay and not same_place(target, home)):
            try:
                yield response
            finally:
                await response.aclose()
            return
        await response.aclose()
        url = target
    raise DownloadFailed(f"{origin(home)} redirects more than {MAX_REDIRECTS} times.")


def redirect_target(response: httpx.Response, url: str) -> str:
    """Where a redirect leads, absolute. Raises DownloadFailed for anything but the web, or for a step from https down."""
    location = str(response.headers.get("location", ""))
    try:
        target = urljoin(url, location)
        scheme = urlsplit(target).scheme
    except ValueError:
        scheme = ""
    if scheme not in ("http", "https") or (urlsplit(url).scheme == "https" and scheme != "https"):
        where = location.partition("?")[0]  # what follows may be a signature
        raise DownloadFailed(f"{origin(url)} redirects to {where[:120]!r}, which is not allowed.")
    origin(target)
    return target


def same_place(one: str, other: str) -> bool:
    """Whether two URLs have scheme, host and port in common."""
    return urlsplit(one).scheme == urlsplit(other).scheme and origin(one) == origin(other)


@contextmanager
def network_errors(url: str) -> Iterator[None]:
    """Turn httpx's errors into ours: a host that is not there is ``Offline``, a line that breaks ``DownloadFailed``."""
    host = urlsplit(url).hostname or url
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise Offline(
                f"The certificate of {host} is not trusted here: {error}.",
                hint="Behind a company proxy, point SSL_CERT_FILE at its CA certificate.",
            ) from error
        raise Offline(
            f"{host} cannot be reached: {str(error) or 'no answer'}.", hint="Check the line."
        ) from error
    except httpx.TimeoutException as error:
        raise DownloadFailed(f"{host} sent nothing for too long.") from error
    except httpx.HTTPError as error:
        raise DownloadFailed(f"The line to {host} broke: {str(error) or type(error).__name__}.") from error
    except httpx.InvalidURL as error:
        raise DownloadFailed(f"{url.partition('?')[0][:120]!r} is no web address.") from error


async def forbid_private(url: str, *, trusted: Collection[str]) -> None:
    """Refuse a host that is, or resolves to, an address inside this machine or network.

    ``trusted`` are the origins that the person named (a mirror at home is theirs to use); what they redirect to is not.

    Raises:
        DownloadFailed: the address is private, loopback, link-local or otherwise not public.
        Offline: the name does not resolve.
    """
    here = origin(url)
    if here in trusted:
        return
    host = here.rpartition(":")[0]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        if goes_through_proxy(url):
            return  # in a network where only the proxy knows names, it is the one to decide
        raise Offline(f"The name {host} does not resolve.", hint="Check the line and the name.") from error
    for entry in found:
        address = ipaddress.ip_address(str(entry[4][0]).split("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        if not (mapped or address).is_global:
            raise DownloadFailed(f"{host} is inside this network; a source must not lead there.")


def goes_through_proxy(url: str) -> bool:
    """Whether the environment (or the system's settings) names a proxy for this URL."""
    parts = urlsplit(url)
    proxies = getproxies()
    named = proxies.get(parts.scheme) or proxies.get("all")
    return bool(named) and not proxy_bypass(parts.hostname or "")


def check_status(response: httpx.Response, what: str) -> None:
    """Raise for an answer that is no content. ``what`` names the thing asked for.

    Raises:
        Gated: 401 or 403: missing, private and gated look alike.
        NotFound, RateLimited, DownloadFailed: as the status says.
    """
    status = response.status_code
    if status in (200, 206):
        return
    host = response.request.url.host
    if status in (401, 403):
        raise Gated(
            f"{what} was not found at {host}, or needs a token ({status}).",
            hint="For a private or gated model, accept its licence at the source and set HF_TOKEN.",
            details={"challenge": response.headers.get("www-authenticate", "")[:1_000]},
        )
    if status in (404, 410):
        raise NotFound(f"{what} does not exist at {host}.", hint="Search for it: localllm search NAME")
    if status == 429 or (status == 503 and "retry-after" in response.headers):
        raise RateLimited(f"{host} asks us to wait.", retry_after_s=retry_after(response.headers))
    raise DownloadFailed(f"{host} answered {status} for {what}.")


async def read_capped(response: httpx.Response, limit_bytes: int) -> bytes:
    """The whole body of an answer that must be small.

    Raises:
        DownloadFailed: it is larger than ``limit_bytes``, or compressed although that was not asked for.
    """
    host = response.request.url.host
    if response.headers.get("content-encoding", "identity") != "identity":
        raise DownloadFailed(f"{host} sent a compressed answer, which was not asked for.")
    body = bytearray()
    with network_errors(str(response.request.url)):
        async for data in response.aiter_raw():
            body += data
            if len(body) > limit_bytes:
                raise DownloadFailed(f"{host} sent more than {limit_bytes >> 20} MiB where little was due.")
    return bytes(body)


def retry_after(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds to wait, from ``Retry-After`` as a number or a date; at most five minutes; None when it says nothing."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), MAX_RETRY_AFTER_SECONDS)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return min(max(0.0, moment.timestamp() - (time.time() if now is None else now)), MAX_RETRY_AFTER_SECONDS)


def content_range(headers: Mapping[str, str]) -> tuple[int, int, int | None]:
    """(first byte, byte after the last, total or None) of a 206 answer.

    Raises:
        DownloadFailed: the header is missing or makes no sense.
    """
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
    if match is None:
        raise DownloadFailed(f"The source answered a range with {headers.get('content-range')!r:.80}.")
    first, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if last < first or (total is not None and last >= total):
        raise DownloadFailed(f"The source answered a range with {match[0]!r}.")
    return first, last + 1, total


async def fetch_small(
    client: httpx.AsyncClient,
    url: str,
    what: str,
    *,
    token: str | None,
    trusted: Collection[str],
    limit_bytes: int,
    accept: str = "application/json",
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> tuple[bytes, httpx.Headers]:
    """The body and headers of something small, such as a listing; tried again when the line or the host stumbles.

    Raises:
        Gated, NotFound, Offline, DownloadFailed: as ``check_status`` and ``follow``.
        RateLimited: the host wants a longer pause than one waits for an answer.
    """
    for attempt in range(1, SMALL_ATTEMPTS + 1):
        try:
            async with follow(
                client, url, headers={"Accept": accept}, token=token, trusted=trusted
            ) as response:
                check_status(response, what)
                return await read_capped(response, limit_bytes), response.headers
        except (DownloadFailed, RateLimited) as error:
            pause = error.retry_after_s if isinstance(error, RateLimited) else None
            if attempt == SMALL_ATTEMPTS or (pause is not None and pause > MAX_SMALL_PAUSE_SECONDS):
                raise
            await sleep(pause if pause is not None else 0.5 * attempt)
    raise AssertionError("the last attempt returns or raises")
