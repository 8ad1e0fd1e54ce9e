"""The devices that tiers and costs count in, and a user's own."""

from pathlib import Path

import pytest

from kvsim.cache.devices import load
from kvsim.traces.trace import TraceError


def test_every_entry_has_a_source_and_usual_figures() -> None:
    devices = load()
    assert all(entry.source for entry in [*devices.accelerators.values(), *devices.links.values()])
    assert devices.accelerator("h100-sxm").prefill_flops == pytest.approx(0.45 * 989e12)
    assert 50e9 <= devices.link("pcie-5").read <= 55e9


def test_loading_takes_the_latency_and_the_bytes_over_the_bandwidth() -> None:
    link = load().link("object-store")
    assert link.load_seconds(8e9) == pytest.approx(0.03 + 2.0)
    assert link.load_seconds(0) == 0


def test_a_users_file_adds_and_overrides(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        "[accelerator.h100-sxm]\nutilisation = 0.5\n"
        "[link.tape]\nread = 4e8\nwrite = 4e8\nlatency = 60\n"
    )
    devices = load(mine)
    assert devices.accelerator("h100-sxm").utilisation == 0.5
    assert devices.accelerator("h100-sxm").memory == load().accelerator("h100-sxm").memory
    assert devices.link("tape").source == "given by the user"
    assert "tape" not in load().links


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("link.x", "not a TOML file"),
        ("[links.x]\nread = 1", r"links: not a table of devices; did you mean 'link'\?"),
        ("link = 3", r"link: give tables, as \[link.name\]"),
        ("[link.x]\nreed = 1", r"link x: reed: not a field of it; did you mean 'read'\?"),
        ("[link.x]\nread = 1", "link x: write is missing"),
        ("[link.pcie-5]\nread = 'fast'", "pcie-5: read is 'fast'; it must be a number"),
        ("[link.pcie-5]\nread = true", "pcie-5: read is True; it must be a number"),
        ("[link.pcie-5]\nread = 0", "pcie-5: read is 0; it must be positive"),
        ("[link.pcie-5]\nlatency = -1", "latency is -1; it must be at least 0"),
        ("[accelerator.b200]\nutilisation = 2", "utilisation is 2; it must be at most 1"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path: Path, text: str, why: str) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(text)
    with pytest.raises(TraceError, match=why):
        load(mine)


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(TraceError, match=r"link pcie-6: not known; did you mean 'pcie-5'\?"):
        load().link("pcie-6")
    with pytest.raises(TraceError, match="accelerator h100: not known"):
        load().accelerator("h100")
