"""A data set is downloaded, read, verified and kept; what is not the expected data is refused."""

from dataclasses import replace

import numpy as np
import pytest

from data.test_download import Site, serve
from data.test_formats import SMALL, idx
from losac.data import DataError, fetch
from losac.data.files import content_digest, read_npz
from losac.data.sources import SOURCES
from losac.data.store import fetch_source, find_arrays


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSAC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LOSAC_DATA_DIR", raising=False)
    return tmp_path / "cache"


def small_source(key):
    arrays, files = SMALL[key]
    return replace(SOURCES[key.split("-")[0]], digest=content_digest(arrays)), arrays, files


def fetch_quickly(source, url, **options):
    return fetch_source(source, base_url=url, progress=False, timeout=5, pause=0.01, **options)


@pytest.mark.parametrize("key", SMALL)
def test_every_format_becomes_the_expected_arrays(key, private_cache):
    source, arrays, files = small_source(key)
    with serve(Site(files)) as site:
        path = fetch_quickly(source, site.url)
    assert path == private_cache / f"{source.name}.npz"
    assert sorted(p.name for p in private_cache.rglob("*") if p.is_file()) == [path.name], "nothing else is left"
    found = read_npz(path, source.digest)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    again = find_arrays(source, download=False)
    assert content_digest(again) == source.digest


@pytest.mark.parametrize("key", ["mnist", "a9a"])
def test_other_data_at_the_source_is_refused_and_not_kept(key, private_cache):
    source, _, files = small_source(key)
    name = next(iter(source.files))
    other = idx(np.zeros((6, 28, 28), np.uint8)) if key == "mnist" else b"+1 1:1\n"
    with serve(Site({**files, name: other})) as site, pytest.raises(DataError) as error:
        fetch_quickly(source, site.url)
    for part in (name, source.digest, "found", f"losac data download {key}", "LOSAC_DATA_DIR"):
        assert part in str(error.value)
    assert not [p for p in private_cache.rglob("*") if p.is_file()]


@pytest.mark.parametrize("key", SMALL)
def test_an_unreadable_file_at_the_source_is_refused_by_name(key, private_cache):
    source, _, files = small_source(key)
    name = next(iter(source.files))
    with serve(Site({**files, name: b"<html>sorry</html>"})) as site, pytest.raises(DataError) as error:
        fetch_quickly(source, site.url)
    for part in (name, "cannot be read", source.digest, f"losac data download {source.name}"):
        assert part in str(error.value)


def test_a_file_the_source_lacks_names_the_url_and_both_ways_out():
    source, _, files = small_source("a9a")
    with serve(Site({"a9a": files["a9a"]})) as site, pytest.raises(DataError) as error:
        fetch_quickly(source, site.url)
    for part in ("a9a.t", f"{site.url}/a9a.t", "404", "losac data download a9a", "LOSAC_DATA_DIR"):
        assert part in str(error.value)


def test_no_network_is_an_error_that_says_what_to_do():
    with serve(Site()) as site:
        url = site.url
    with pytest.raises(DataError, match=rf"a9a .*{url}/a9a.*losac data download a9a.*LOSAC_DATA_DIR"):
        fetch_quickly(SOURCES["a9a"], url, retries=0)


def test_a_mirror_stands_in_for_a_source_that_is_gone():
    source, _, files = small_source("w8a")
    with serve(Site(files)) as site:
        mirrored = replace(source, files={"w8a": (f"{site.url}/gone", f"{site.url}/w8a")})
        assert fetch_source(mirrored, progress=False).exists()


def test_a_missing_file_is_downloaded_on_use_and_then_found_in_the_cache():
    source, _, files = small_source("w8a")
    with serve(Site(files)) as site:
        local = replace(source, files={"w8a": (f"{site.url}/w8a",)})
        find_arrays(local)
        find_arrays(local)
    assert len(site.asked) == 1


def test_fetch_refuses_an_unknown_name():
    with pytest.raises(ValueError, match=r"unknown data set to download 'minst'.*har.*Did you mean 'mnist'"):
        fetch("minst")
