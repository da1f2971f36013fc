"""Open the report in headless Chromium: it must draw, complain of nothing and ask for nothing."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from vflsynth import IndependentSynthesizer
from vflsynth.audit import audit_synthetic_data
from vflsynth.datasets import make_party_frames
from vflsynth.evaluation import report
from vflsynth.federation import console, trail
from vflsynth.federation.site import Site
from vflsynth.release import release_gate
from vflsynth.splitdefense import MarvellClassifier, leakage_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]

QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Chromium asks for updates of its own; nothing here may leave the machine.
    "--host-resolver-rules=MAP * ~NOTFOUND",
]


def browse(page, profile, *options):
    command = [CHROMIUM, *QUIET, f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def requests_of(page, folder):
    """Open a page; return the remote addresses that *it* asked for, and the browser's log."""
    log = folder / "net.json"
    opened = browse(
        page,
        folder / "profile",
        "--enable-logging=stderr",
        f"--log-net-log={log}",
        "--net-log-capture-mode=Everything",
        "--dump-dom",
    )
    # Requests of a page opened from disk are kept apart under "file://"; the browser's own are not.
    asked = re.findall(
        r'"network_isolation_key":"file://.*?"url":"((?!file:|data:)[^"]*)"',
        log.read_text(encoding="utf-8"),
    )
    return asked, opened


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    wine = load_wine(as_frame=True).frame
    columns = list(wine)
    synthetic = wine.sample(frac=1, random_state=0).reset_index(drop=True)
    noise = np.random.default_rng(0).normal(0, 0.1, (len(wine), 13))
    synthetic[columns[:13]] += noise * wine[columns[:13]].std().to_numpy()
    history = pd.DataFrame({"epoch": [1, 2], "frechet_distance": [2.0, 1.0], "loss": [0.1, 0.2]})
    made = report(
        wine,
        synthetic,
        parties={"a": columns[:7], "b": columns[7:]},
        target="target",
        categorical=["target"],
        history=history,
    )
    return made.save(tmp_path_factory.mktemp("page") / "report.html")


def test_opens_without_error_or_request(page, tmp_path):
    asked, opened = requests_of(page, tmp_path)
    assert asked == []
    assert "CONSOLE" not in opened.stderr
    assert "<h2>Columns one by one</h2>" in opened.stdout


def test_an_error_or_a_request_would_be_noticed(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        '<img src="http://example.invalid/a.png"><script>missing()</script>', encoding="utf-8"
    )
    asked, opened = requests_of(page, tmp_path)
    assert set(asked) == {"http://example.invalid/a.png"}
    assert "CONSOLE" in opened.stderr


def measured(page, folder, *options):
    """What a page finds when it measures itself, on a screen as wide as a phone's."""
    # The pages have no script; this copy prints what it finds.
    measure = """<script>onload = () => {
      const images = [...document.images], body = getComputedStyle(document.body);
      const scrolls = [...document.querySelectorAll("*")].filter(
        e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != "visible");
      document.title = JSON.stringify({
        images: images.length,
        broken: images.filter(i => !i.complete || !i.naturalWidth).length,
        overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
        unreachable: scrolls.filter(e => e.tabIndex < 0).map(e => e.className || e.tagName),
        cut: [...document.querySelectorAll("td, th")].filter(
          e => e.getBoundingClientRect().right > innerWidth).map(e => e.innerText),
        dark: matchMedia("(prefers-color-scheme: dark)").matches,
        colours: [body.color, body.backgroundColor].map(c => c.match(/\\d+/g).map(Number)),
      });
    }</script></body>"""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    copy = folder / "copy.html"
    copy.write_text(text.replace("</body>", measure), encoding="utf-8")
    opened = browse(copy, folder / "profile", "--window-size=500,900", "--dump-dom", *options)
    return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", opened.stdout).group(1)))


def test_every_picture_is_drawn_and_nothing_is_wider_than_a_phone(page, tmp_path):
    found = measured(page, tmp_path)
    assert (found["broken"], found["overflow"], found["unreachable"]) == (0, 0, [])
    assert found["images"] >= 14 + 6 + 3 + 1 + 1 + 2


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The other kinds: an audit's, of labels' leakage, a release's to keep, a site's console."""
    folder, frames = tmp_path_factory.mktemp("pages"), make_party_frames(60, 2, random_state=0)
    synth = IndependentSynthesizer(random_state=0)
    audit = audit_synthetic_data(synth, frames, on="record_id", n_models=16, n_jobs=1, verbose=0)
    wine = load_wine(as_frame=True).frame.assign(target=lambda t: (t["target"] > 0).astype(int))
    halves = {"a": wine.iloc[:, :7], "b": wine.iloc[:, 7:-1]}
    classifier = MarvellClassifier(active="b", power_scale=4.0, epochs=3, random_state=0)
    dossier = release_gate(wine.iloc[::2], wine.iloc[1::2].reset_index(drop=True))
    made = {
        "audit": audit.page(),
        "leakage": leakage_report(classifier.fit(halves, wine["target"])),
        "internal": dossier.internal_page(audit=audit),
    }
    site = Site("clinic", folder / "clinic")
    (site.folder / "job").mkdir(parents=True)
    (site.folder / "job" / "report-001.json").write_text('{"outcome": "finished"}')
    trail.append(site.folder, "approved", {})
    (folder / "console.html").write_text(console.page(console.SiteState.of(site)), encoding="utf-8")
    saved = {name: page.save(folder / f"{name}.html") for name, page in made.items()}
    return saved | {"console": folder / "console.html"}


@pytest.mark.parametrize("name", ["audit", "leakage", "internal", "console"])
def test_pages_of_every_kind_open_in_light_and_dark(pages, name, tmp_path):
    page = pages[name]
    asked, opened = requests_of(page, tmp_path)
    assert asked == []
    assert "CONSOLE" not in opened.stderr
    backgrounds = []
    for folder, options in (("light", ()), ("dark", ("--blink-settings=preferredColorScheme=0",))):
        (tmp_path / folder).mkdir()
        found = measured(page, tmp_path / folder, *options)
        assert (found["broken"], found["overflow"], found["unreachable"]) == (0, 0, [])
        assert found["cut"] == [], "every cell of every table can be read without scrolling"
        assert found["dark"] == (folder == "dark")
        text, background = (sum(colour[:3]) for colour in found["colours"])
        assert abs(text - background) > 300  # it can be read
        backgrounds.append(background)
    assert backgrounds[0] > 600 > 200 > backgrounds[1]


def test_the_edition_to_hand_out_opens_too(tmp_path):
    wine = load_wine(as_frame=True).frame
    dossier = release_gate(wine.iloc[::2], wine.iloc[1::2].reset_index(drop=True))
    table = {"file": "synthetic.csv", "sha256": "0" * 64, "rows": 89, "columns": []}
    content = dossier.public_content(table, {"settings": "1" * 64})
    page = dossier.public_page(content).save(tmp_path / "release.html")
    asked, opened = requests_of(page, tmp_path)
    assert asked == []
    assert "CONSOLE" not in opened.stderr
    assert "<h2>Clauses of the release</h2>" in opened.stdout
    assert "<img" not in opened.stdout
