"""One file over HTTP: resumed after a break, renamed into place only when whole."""

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from pathlib import Path

_CHUNK = 1 << 16
_WORTH_A_RETRY = {408, 429, 500, 502, 503, 504}

Report = Callable[[int, int | None], None]


class DownloadError(OSError):
    """The URL did not give the whole file."""


def download_file(
    url: str,
    path: Path,
    *,
    retries: int = 2,
    timeout: float = 30.0,
    pause: float = 1.0,
    progress: bool = True,
) -> Path:
    """Download `url` to `path`; continue `path`.part if an earlier try stopped.

    The download starts again if the server ignores the Range header or its file changed size.
    `path` itself appears only when the file is complete.

    Args:
        url: an http(s) address.
        path: where the file goes.
        retries: further tries after a broken connection or a server error.
        timeout: seconds without a byte after which a connection counts as broken.
        pause: seconds before the first retry; each further pause is twice as long.
        progress: show a progress bar on standard error.

    Raises:
        DownloadError: after the last try, or at once if a retry cannot help (such as 404).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with _bar(path.name, shown=progress) as report:
        for attempt in range(retries + 1):
            try:
                _continue(url, part, timeout, report)
                break
            except urllib.error.HTTPError as error:
                error.close()
                if error.code not in _WORTH_A_RETRY or attempt == retries:
                    raise DownloadError(f"{url}: HTTP {error.code} {error.reason}") from error
            except (OSError, http.client.HTTPException) as error:
                if attempt == retries:
                    reason = getattr(error, "reason", None) or error
                    raise DownloadError(f"{url}: {reason} (tried {retries + 1} times)") from error
            time.sleep(pause * 2**attempt)
    os.replace(part, path)
    return path


def _continue(url: str, part: Path, timeout: float, report: Report) -> None:
    """Append to `part` what is still missing; raise OSError if the connection ends early."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "losac"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        error.close()
        if _content_range(error.headers)[1] == have:
            return
        part.unlink(missing_ok=True)
        raise ConnectionError(f"the {have} bytes of an earlier download do not match the server's file") from error
    with response:
        start, total = _content_range(response.headers)
        if response.status != 206:
            length = response.headers.get("Content-Length")
            have, total = 0, int(length) if length else None
        elif start != have:
            part.unlink(missing_ok=True)
            raise ConnectionError(f"asked for the bytes from {have}, was sent those from {start}")
        with part.open("ab" if have else "wb") as stream:
            while chunk := response.read(_CHUNK):
                stream.write(chunk)
                have += len(chunk)
                report(have, total)
    if total is not None and have != total:
        raise ConnectionError(f"the connection ended after {have} of {total} bytes")


def _content_range(headers: Message) -> tuple[int | None, int | None]:
    """Return (first byte, total size) of a Content-Range header; None for missing parts."""
    match = re.match(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", headers.get("Content-Range", ""))
    if match is None:
        return None, None
    start, total = match.groups()
    return (int(start) if start else None), (int(total) if total != "*" else None)


@contextmanager
def _bar(label: str, *, shown: bool) -> Iterator[Report]:
    """Yield a function to call with (bytes so far, bytes in total)."""
    if not shown:
        yield lambda _have, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=None)
        yield lambda have, total: bars.update(task, completed=have, total=total)
