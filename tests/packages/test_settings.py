"""What of this machine reaches an image build."""

import subprocess
from pathlib import Path

import pytest

from gpu_casebook.packages.settings import BuildSettings, collect, for_pip, for_uv, pip_options

INDEX = "https://user:pass%20word@index.example/simple"


def env_of(settings: BuildSettings, tmp_path: Path) -> dict[str, str]:
    """What a shell has in its environment after reading the settings, as the Dockerfiles do it."""
    path = tmp_path / "env"
    path.write_text(settings.script)
    done = subprocess.run(["/usr/bin/env", "-i", "sh", "-c", f". {path} && env -0"], capture_output=True, check=True)
    pairs = (entry.partition("=") for entry in done.stdout.decode().split("\0"))
    return {name: value for name, _, value in pairs if name not in {"", "PWD", "_", "SHLVL", "OLDPWD"}}


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"])
def test_an_index_given_to_uv_or_pip_is_told_to_both(name: str, tmp_path: Path) -> None:
    env = env_of(collect({name: INDEX}, {}), tmp_path)
    assert env["UV_DEFAULT_INDEX"] == env["PIP_INDEX_URL"] == INDEX


def test_an_index_may_stand_in_pips_file_and_a_variable_wins_over_it(tmp_path: Path) -> None:
    assert env_of(collect({}, {"index-url": INDEX}), tmp_path)["UV_DEFAULT_INDEX"] == INDEX
    other = "https://other.example/simple"
    assert env_of(collect({"PIP_INDEX_URL": other}, {"index-url": INDEX}), tmp_path)["UV_DEFAULT_INDEX"] == other


def test_places_on_this_machine_are_left_out(tmp_path: Path) -> None:
    variables = {
        "UV_INDEX": "file:///srv/index mine=https://a.example/simple",
        "UV_FIND_LINKS": "/srv/wheels",
        "PIP_FIND_LINKS": "/srv/wheels https://b.example/wheels",
        "UV_DEFAULT_INDEX": "/srv/simple",
    }
    env = env_of(collect(variables, {}), tmp_path)
    assert env["UV_INDEX"] == "https://a.example/simple"
    assert env["UV_FIND_LINKS"] == "https://b.example/wheels"
    assert "UV_DEFAULT_INDEX" not in env


def test_with_a_second_index_any_may_serve_a_package_as_with_pip(tmp_path: Path) -> None:
    env = env_of(collect({"PIP_EXTRA_INDEX_URL": INDEX}, {}), tmp_path)
    assert env["UV_INDEX"] == INDEX
    assert env["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert "UV_INDEX_STRATEGY" not in env_of(collect({"PIP_INDEX_URL": INDEX}, {}), tmp_path)


def test_the_first_certificate_bundle_that_exists_is_handed_in(tmp_path: Path) -> None:
    bundle = tmp_path / "mine.pem"
    bundle.write_bytes(b"certificates")
    settings = collect({"SSL_CERT_FILE": str(tmp_path / "gone.pem"), "PIP_CERT": str(bundle)}, {})
    assert settings.certificates == bundle
    env = env_of(settings, tmp_path)
    assert env["SSL_CERT_FILE"] == env["PIP_CERT"] == "/run/secrets/ca.pem"


def test_where_no_bundle_is_named_the_machines_own_is_handed_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "system.pem"
    own.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(own))  # what OpenSSL's default is read from
    assert collect({}, {}).certificates == own


def test_proxies_go_in_both_spellings_and_as_build_arguments(tmp_path: Path) -> None:
    settings = collect({"https_proxy": "http://proxy.example:3128", "NO_PROXY": "localhost"}, {})
    expected = {
        "https_proxy": "http://proxy.example:3128",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "no_proxy": "localhost",
        "NO_PROXY": "localhost",
    }
    assert settings.proxies == expected
    assert expected.items() <= env_of(settings, tmp_path).items()


def test_a_proxy_may_stand_in_pips_file() -> None:
    assert collect({}, {"proxy": "http://p.example"}).proxies["https_proxy"] == "http://p.example"


def test_the_shell_gets_values_as_they_are(tmp_path: Path) -> None:
    strange = "https://u:$(id)'\"`p`@index.example/simple"
    assert env_of(collect({"PIP_INDEX_URL": strange}, {}), tmp_path)["PIP_INDEX_URL"] == strange


def test_secrets_are_not_in_the_representation() -> None:
    settings = collect({"PIP_INDEX_URL": INDEX, "HTTPS_PROXY": "http://user:hidden@proxy.example"}, {})
    assert "pass" not in repr(settings)
    assert "hidden" not in repr(settings)


def test_pips_files_are_read_a_later_one_over_an_earlier_one(tmp_path: Path) -> None:
    first, second, broken = (tmp_path / name for name in ("1.conf", "2.conf", "3.conf"))
    first.write_text("[global]\nindex-url = https://one.example\ntimeout = 7\n[install]\ntrusted_host = a.example\n")
    second.write_text("[global]\nindex_url = https://two.example/%s\n")
    broken.write_text("no section\n")
    assert pip_options([first, tmp_path / "gone", broken, second]) == {
        "index-url": "https://two.example/%s",
        "timeout": "7",
        "trusted-host": "a.example",
    }


def test_pip_reads_the_file_of_PIP_CONFIG_FILE(tmp_path: Path) -> None:  # noqa: N802 as pip spells it
    path = tmp_path / "pip.conf"
    path.write_text(f"[global]\nindex-url = {INDEX}\n")
    assert env_of(collect({"PIP_CONFIG_FILE": str(path)}), tmp_path)["UV_DEFAULT_INDEX"] == INDEX


def test_uv_hears_what_pip_was_told(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\ncert = /file/ca.pem\nextra-index-url =\n  https://one.example/\n  https://two.example/\n"
    )
    heard = for_uv(
        {
            "PIP_CONFIG_FILE": str(file),
            "PIP_INDEX_URL": "https://pip.example/",
            "PIP_FIND_LINKS": "/a /b",
            "UV_HTTP_TIMEOUT": "7",
            "PIP_DEFAULT_TIMEOUT": "9",
            "OTHER": "kept",
        }
    )
    assert heard["UV_DEFAULT_INDEX"] == "https://pip.example/"
    assert heard["UV_INDEX"] == "https://one.example/ https://two.example/"
    assert heard["UV_FIND_LINKS"] == "/a,/b"
    assert heard["SSL_CERT_FILE"] == "/file/ca.pem"
    assert heard["UV_HTTP_TIMEOUT"] == "7"
    assert heard["OTHER"] == "kept"
    assert for_uv({"UV_DEFAULT_INDEX": "https://uv.example/", **heard})["UV_DEFAULT_INDEX"] == "https://pip.example/"


def test_pip_hears_what_uv_alone_was_told() -> None:
    environ = for_pip({"UV_DEFAULT_INDEX": "https://index.example/simple", "SSL_CERT_FILE": "/ca"})
    assert (environ["PIP_INDEX_URL"], environ["PIP_CERT"]) == ("https://index.example/simple", "/ca")
    assert for_pip({"PIP_INDEX_URL": "a", "UV_DEFAULT_INDEX": "b"})["PIP_INDEX_URL"] == "a"
