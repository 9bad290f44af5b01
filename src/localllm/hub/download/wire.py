"""The HTTP rules of a download: whom the token may be shown, where a redirect may lead, what an answer means.

httpx does the talking; redirects are followed here, by hand, since the token must not follow them to another host and a
model's name must not be able to point us at a machine in the local network.
"""

from __future__ import annotations

import email.utils
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit

import httpx

from localllm._version import __version__
from localllm.core.errors import DownloadFailed, Gated, HubError, NotFound, Offline, RateLimited

MAX_REDIRECTS = 8
CONNECT_SECONDS = 15.0
STALL_SECONDS = 30.0
MAX_RETRY_AFTER_SECONDS = 300.0
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


def new_client(*, proxy: str | None = None, verify: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    """A client with our limits; proxies and extra CAs come from the environment (HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE)."""
    return httpx.AsyncClient(
        headers={"User-Agent": f"localllm/{__version__}", "Accept-Encoding": "identity"},
        timeout=httpx.Timeout(STALL_SECONDS, connect=CONNECT_SECONDS),
        limits=httpx.Limits(max_connections=32, max_keepalive_connections=8),
        follow_redirects=False,
        proxy=proxy,
        verify=verify if verify is not None else system_trust(),
    )


def system_trust() -> ssl.SSLContext:
    """The operating system's certificates (and SSL_CERT_FILE / SSL_CERT_DIR); httpx's own bundle where there are none."""
    context = ssl.create_default_context()
    if not context.get_ca_certs() and not context.cert_store_stats()["x509_ca"]:
        return httpx.create_ssl_context()
    return context


@asynccontextmanager
async def follow(
    client: httpx.AsyncClient, url: str, *, headers: Mapping[str, str], token: str | None
) -> AsyncIterator[httpx.Response]:
    """GET with redirects; the body is not read yet. ``token`` goes to the first host (and scheme) only.

    Raises:
        DownloadFailed: too many redirects, one to a place that is not allowed, or the line broke.
        Offline: the host cannot be reached.
    """
    home = urlsplit(url)
    for _ in range(MAX_REDIRECTS):
        await forbid_private(url, unless_host=home.hostname)
        here = urlsplit(url)
        sent = dict(headers)
        if token is not None and (here.scheme, here.netloc) == (home.scheme, home.netloc):
            sent["Authorization"] = f"Bearer {token}"
        with network_errors(url):
            response = await client.send(client.build_request("GET", url, headers=sent), stream=True)
        if response.status_code not in (301, 302, 303, 307, 308):
            try:
                yield response
            finally:
                await response.aclose()
            return
        await response.aclose()
        target = urljoin(url, response.headers.get("location", ""))
        if urlsplit(target).scheme not in ("http", "https") or (
            home.scheme == "https" and urlsplit(target).scheme != "https"
        ):
            raise DownloadFailed(f"{home.hostname} redirects to {target[:120]!r}, which is not allowed.")
        url = target
    raise DownloadFailed(f"{home.hostname} redirects more than {MAX_REDIRECTS} times.")


class network_errors:  # noqa: N801 - reads as the statement it is
    """Turn httpx's errors into ours, worded; the line breaking is ``Offline`` or ``DownloadFailed``, never a traceback."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).hostname or url

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise Offline(
                    f"The certificate of {self._host} is not trusted here: {error}.",
                    hint="Behind a company proxy, point SSL_CERT_FILE at its CA certificate.",
                ) from error
            raise Offline(
                f"{self._host} cannot be reached: {str(error) or 'no answer'}.", hint="Check the line."
            ) from error
        if isinstance(error, httpx.TimeoutException):
            raise DownloadFailed(f"{self._host} sent nothing for {STALL_SECONDS:g} s.") from error
        if isinstance(error, httpx.HTTPError):
            raise DownloadFailed(
                f"The line to {self._host} broke: {str(error) or type(error).__name__}."
            ) from error


async def forbid_private(url: str, *, unless_host: str | None) -> None:
    """Refuse a host that is, or resolves to, an address inside this machine or network.

    ``unless_host`` is the host the person named (a mirror at home is theirs to use); what it redirects to is not.

    Raises:
        DownloadFailed: the address is private, loopback, link-local or otherwise not public.
        Offline: the name does not resolve.
    """
    host = urlsplit(url).hostname
    if host is None:
        raise DownloadFailed(f"{url[:120]!r} has no host.")
    if host == unless_host:
        return
    import anyio.to_thread

    try:
        found = await anyio.to_thread.run_sync(
            lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        )
    except OSError as error:
        raise Offline(f"The name {host} does not resolve.", hint="Check the line and the name.") from error
    for entry in found:
        address = ipaddress.ip_address(str(entry[4][0]).split("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        if not (mapped or address).is_global:
            raise DownloadFailed(
                f"A redirect leads to {host}, which is inside this network; it was not followed."
            )


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
            hint="For a gated model accept its licence at the source and set HF_TOKEN.",
        )
    if status in (404, 410):
        raise NotFound(f"{what} does not exist at {host}.")
    if status == 429 or (status == 503 and "retry-after" in response.headers):
        raise RateLimited(f"{host} asks us to wait.", retry_after_s=retry_after(response.headers))
    raise DownloadFailed(f"{host} answered {status} for {what}.")


def retry_after(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds to wait, from ``Retry-After`` as a number or a date; at most five minutes; None when it says nothing."""
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return min(float(value), MAX_RETRY_AFTER_SECONDS)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return min(max(0.0, moment.timestamp() - (time.time() if now is None else now)), MAX_RETRY_AFTER_SECONDS)


def content_range(headers: Mapping[str, str]) -> tuple[int, int, int | None]:
    """(first byte, byte after the last, total or None) of a 206 answer.

    Raises:
        HubError: the header is missing or makes no sense.
    """
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
    if match is None:
        raise HubError(f"The source answered a range with {headers.get('content-range')!r:.80}.")
    first, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if last < first or (total is not None and last >= total):
        raise HubError(f"The source answered a range with {match[0]!r}.")
    return first, last + 1, total
