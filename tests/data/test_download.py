"""One file over a network that breaks; only 127.0.0.1 is ever reached."""

import http.server
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from losac.data.download import DownloadError, download_file

BODY = bytes(range(256)) * 400


@dataclass
class Site:
    """A small web site, and how it misbehaves."""

    files: dict = field(default_factory=dict)
    ranges: bool = True
    cut_first: int | None = None
    fail_first: int = 0
    asked: list = field(default_factory=list)
    url: str = ""


@contextmanager
def serve(site):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            site.asked.append((self.path, wanted))
            body = site.files.get(self.path.lstrip("/"))
            if body is None:
                return self.send_error(404)
            if len(site.asked) <= site.fail_first:
                return self.send_error(503)
            start = int(re.match(r"bytes=(\d+)-", wanted)[1]) if wanted and site.ranges else 0
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                return self.end_headers()
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            end = site.cut_first if site.cut_first and len(site.asked) == 1 else len(body)
            self.wfile.write(body[start:end])
            self.close_connection = True
            return None

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def quick(url, path, **options):
    return download_file(url, path, timeout=5, pause=0.01, progress=False, **options)


def test_a_file_arrives_whole(tmp_path):
    with serve(Site({"f": BODY})) as site:
        assert quick(f"{site.url}/f", tmp_path / "f").read_bytes() == BODY
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_progress_bar_is_shown_on_standard_error(tmp_path, capfd):
    with serve(Site({"f": BODY})) as site:
        download_file(f"{site.url}/f", tmp_path / "name-of-file", timeout=5, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "name-of-file" in err


def test_a_broken_connection_is_resumed_where_it_stopped(tmp_path):
    with serve(Site({"f": BODY}, cut_first=70_000)) as site:
        assert quick(f"{site.url}/f", tmp_path / "f").read_bytes() == BODY
    assert site.asked == [("/f", None), ("/f", "bytes=70000-")]


def test_a_part_left_by_an_earlier_run_is_resumed(tmp_path):
    (tmp_path / "f.part").write_bytes(BODY[:1000])
    with serve(Site({"f": BODY})) as site:
        assert quick(f"{site.url}/f", tmp_path / "f").read_bytes() == BODY
    assert site.asked == [("/f", "bytes=1000-")]


def test_a_server_without_ranges_makes_the_download_start_again(tmp_path):
    (tmp_path / "f.part").write_bytes(b"x" * 1000)
    with serve(Site({"f": BODY}, ranges=False)) as site:
        assert quick(f"{site.url}/f", tmp_path / "f").read_bytes() == BODY


@pytest.mark.parametrize("kept", [BODY, BODY + b"too much"], ids=["whole", "too long"])
def test_a_part_that_is_whole_is_kept_and_one_that_is_too_long_is_not(tmp_path, kept):
    (tmp_path / "f.part").write_bytes(kept)
    with serve(Site({"f": BODY})) as site:
        assert quick(f"{site.url}/f", tmp_path / "f").read_bytes() == BODY


def test_a_server_in_trouble_is_asked_again(tmp_path):
    with serve(Site({"f": BODY}, fail_first=2)) as site:
        assert quick(f"{site.url}/f", tmp_path / "f").read_bytes() == BODY
    assert len(site.asked) == 3


def test_a_missing_file_is_not_asked_for_again(tmp_path):
    with serve(Site()) as site, pytest.raises(DownloadError, match=r"/nothing: HTTP 404"):
        quick(f"{site.url}/nothing", tmp_path / "f")
    assert len(site.asked) == 1
    assert not (tmp_path / "f").exists()


def test_no_network_names_the_url_and_the_tries(tmp_path):
    with serve(Site()) as site:
        url = f"{site.url}/f"
    with pytest.raises(DownloadError, match=rf"{url}: .*refused.*tried 2 times"):
        quick(url, tmp_path / "f", retries=1)
