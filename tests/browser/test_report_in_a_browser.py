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

PHONE = 400
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
    """What a page finds when it measures itself in a frame as wide as a phone.

    A window of Chromium is at least 500 pixels wide; a frame, and what it asks of styles, is not.
    """
    # The pages have no script; this copy tells the page around it what it finds.
    measure = """<script>onload = () => {
      const images = [...document.images], all = [...document.querySelectorAll("body, body *")];
      const scrolls = all.filter(
        e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != "visible");
      const colour = text => {
        const [r, g, b, alpha = 1] = text.match(/[\\d.]+/g).map(Number);
        return {light: [r, g, b].map(c => c / 255).map(
          c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4), alpha};
      };
      const brightness = c => .2126 * c.light[0] + .7152 * c.light[1] + .0722 * c.light[2];
      const behind = e => {
        for (; e; e = e.parentElement) {
          const found = colour(getComputedStyle(e).backgroundColor);
          if (found.alpha == 1) return brightness(found);
        }
        return matchMedia("(prefers-color-scheme: dark)").matches ? 0 : 1;
      };
      const contrast = e => {
        const two = [brightness(colour(getComputedStyle(e).color)), behind(e)];
        return (Math.max(...two) + .05) / (Math.min(...two) + .05);
      };
      const written = all.filter(e => [...e.childNodes].some(
        n => n.nodeType == 3 && n.data.trim()) && e.getClientRects().length);
      parent.document.title = JSON.stringify({
        width: innerWidth,
        images: images.length,
        broken: images.filter(i => !i.complete || !i.naturalWidth).length,
        overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
        unreachable: scrolls.filter(e => e.tabIndex < 0).map(e => e.className || e.tagName),
        cut: [...document.querySelectorAll("td, th")].filter(
          e => e.getBoundingClientRect().right > innerWidth).map(e => e.innerText),
        dark: matchMedia("(prefers-color-scheme: dark)").matches,
        paper: behind(document.body),
        faint: written.filter(e => contrast(e) < 4.5).map(e => e.innerText.slice(0, 40)),
      });
    }</script></body>"""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    text = html.escape(text.replace("</body>", measure))
    copy = folder / "copy.html"
    frame = f'<iframe width="{PHONE}" height="800" srcdoc="{text}"></iframe>'
    copy.write_text(f"<!doctype html><title></title>{frame}", encoding="utf-8")
    opened = browse(copy, folder / "profile", "--window-size=800,900", "--dump-dom", *options)
    found = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", opened.stdout).group(1)))
    assert found["width"] == PHONE
    return found


def test_every_picture_is_drawn_and_nothing_is_wider_than_a_phone(page, tmp_path):
    found = measured(page, tmp_path)
    assert (found["broken"], found["overflow"], found["unreachable"]) == (0, 0, [])
    assert found["cut"] == found["faint"] == []
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
        assert found["faint"] == [], "every text stands out from what is behind it (WCAG, 4.5)"
        backgrounds.append(found["paper"])
    assert backgrounds[0] > 0.8 > 0.1 > backgrounds[1]


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
