"""``campaign report``: what the page states, and that no text of a file becomes markup."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml

import cli
from campaigns.design.settings import Setting
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import Repetition
from campaigns.keeping.results import read_campaign
from devices.operation import OpSpec
from devices.profile import Interval
from devices.program import COMMAND
from devices.results import Results
from plots.report.details import facts_of
from plots.report.figures import figures_of
from plots.report.summaries import methods_side_by_side, prediction_table, problems_of
from plots.report.table import NOTHING
from tests.support.campaigns import add_failure, campaign_with_replays
from tests.support.graphs.profiles import made_up_profile
from tests.support.paths import REFERENCES

HOSTILE = "</script><img src=x onerror=alert(1)><script>alert(2)</script>\x00\x1b[31m"


class Page(HTMLParser):
    """Elements with their attributes, and the text, of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.words: list[str] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._in_cell:
            self.rows[-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


pytestmark = pytest.mark.slow  # a campaign is solved for them


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> CampaignDirectory:
    return campaign_with_replays(Results(tmp_path_factory.mktemp("results")))


def reported(directory: CampaignDirectory, path: Path) -> str:
    assert cli.main(["campaign", "report", str(directory.path), "--out", str(path)]) == 0
    return path.read_text(encoding="utf-8")


def test_every_cell_has_a_row_with_its_figures_and_their_sources(
    campaign: CampaignDirectory, tmp_path: Path
) -> None:
    page = Page(reported(campaign, tmp_path / "report.html"))
    results = read_campaign(campaign.path)
    rows = [attributes for attributes in page.all("tr") if attributes.get("id")]
    assert [row["id"] for row in rows] == [f"cell-{n + 1}" for n in range(len(results.cells))]
    first = next(row for row in page.rows if row and row[0] == "1" and "done" in row)
    assert any("published" in entry for entry in first)  # predicted
    assert any("measured" in entry for entry in first)  # as run
    assert "+5.50 %" in first


def test_tables_have_captions_and_scopes_and_pictures_have_texts(
    campaign: CampaignDirectory, tmp_path: Path
) -> None:
    page = Page(reported(campaign, tmp_path / "report.html"))
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(head.get("scope") in ("row", "col") for head in page.all("th"))
    charts = [svg for svg in page.all("svg") if svg.get("class") == "chart"]
    assert charts
    for chart in charts:
        named = (chart["aria-labelledby"] or "").split()
        assert {element.get("id") for _, element in page.elements} >= set(named)


def test_the_page_needs_nothing_else(campaign: CampaignDirectory, tmp_path: Path) -> None:
    text = reported(campaign, tmp_path / "report.html")
    page = Page(text)
    assert not page.all("link")
    assert not [tag for tag, attributes in page.elements if attributes.get("src")]
    assert all((link["href"] or "").startswith("#") for link in page.all("a"))
    assert "url(" not in text
    assert "default-src 'none'" in text


def test_texts_of_files_stay_texts(tmp_path: Path) -> None:
    directory = campaign_with_replays(Results(tmp_path), ram_budgets=["100%"])
    cell = directory.design().cells[0]
    (directory.of(cell) / "cell.json").unlink()
    for replay in directory.of(cell).glob("repetition-*"):
        replay.unlink()
    add_failure(directory, cell, HOSTILE)
    text = reported(directory, tmp_path / "report.html")
    page = Page(text)
    assert not page.all("img")
    assert len(page.all("script")) == 2
    assert "alert(1)" in "".join(page.words)
    assert not re.search(r"[\x00\x1b]", text)
    table = text.index("What failed, given up first")
    assert table < text.index("What was asked</h2>"), "failures come first"


def cells_in(text: str) -> list[dict[str, list[str]]]:
    """Details of the cells that a page holds."""
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    cells: list[dict[str, list[str]]] = json.loads(found[1])["cells"]
    return cells


def words_of(command: str) -> list[str]:
    """Words of a printed command, after the name of the program."""
    assert command.startswith(COMMAND)
    return shlex.split(command.removeprefix(COMMAND))


def test_details_say_where_figures_are_from_and_how_to_repeat_them(
    campaign: CampaignDirectory, tmp_path: Path
) -> None:
    cells = cells_in(reported(campaign, tmp_path / "report.html"))
    result = read_campaign(campaign.path).cells[0]
    assert result.solved is not None
    facts, commands = str(cells[0]["facts"]), " ".join(cells[0]["commands"])
    assert result.solved.graph_sha256 in facts
    assert result.solved.circumstances.program in facts
    assert f"--ram-budget {result.solved.ram_bytes}" in commands
    schedule = campaign.schedule_file(result.cell)
    assert f"run --schedule {schedule} --device local" in commands


def test_commands_run_where_the_report_was_asked_for(
    campaign: CampaignDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(campaign.path, tmp_path / "results" / "campaigns" / "tried")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["campaign", "report", "tried"]) == 0
    text = (tmp_path / "results" / "campaigns" / "tried" / "report.html").read_text()
    solving, running = cells_in(text)[0]["commands"]
    assert cli.main(words_of(solving)) == 0
    assert cli.main([*words_of(running), "--dry-run"]) == 0


def test_a_campaign_with_files_of_its_own_is_repeated_from_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "nets").mkdir(parents=True)
    shutil.copy(REFERENCES / "exported" / "classifier.pt2", tmp_path / "results" / "nets")
    directory = campaign_with_replays(
        Results(Path("results")),
        networks=["nets/classifier.pt2"],
        ram_budgets=["100%"],
        methods=["keep-everything"],
    )
    (cell,) = directory.design().cells
    directory.solved_file(cell).unlink()
    (details,) = cells_in(reported(directory, tmp_path / "report.html"))
    packing, unpacking, repeating = map(words_of, details["commands"])
    assert cli.main(packing) == cli.main(unpacking) == 0
    capsys.readouterr()
    assert cli.main([*repeating, "--dry-run", "--json"]) == 0
    (repeated,) = json.loads(capsys.readouterr().out)["cells"]
    assert repeated["hash"] == cell.hash
    unpacked = CampaignDirectory(Path(unpacking[-1]))
    (details,) = cells_in(reported(unpacked, tmp_path / "unpacked.html"))
    assert list(map(words_of, details["commands"])) == [repeating]


def test_methods_are_side_by_side_only_within_the_same_ram(campaign: CampaignDirectory) -> None:
    """In slices, for example, a step has another peak, and the same share is another budget."""
    methods = ["keep-everything", "chen-sqrt-n"]
    whole, other = (
        next(
            figures_of(result, 1, columns=1)
            for result in read_campaign(campaign.path).cells
            if (result.cell.ram_budget, result.cell.method) == ("100%", method)
        )
        for method in methods
    )
    assert len(methods_side_by_side([whole, other], methods).rows) == 1
    assert other.result.solved is not None
    peak_bytes = other.result.solved.unconstrained_peak_bytes - 1
    solved = other.result.solved.model_copy(update={"unconstrained_peak_bytes": peak_bytes})
    other = replace(other, result=replace(other.result, solved=solved))
    first, second = methods_side_by_side([whole, other], methods).rows
    assert first[0].text.endswith(f"100% = {peak_bytes + 1:,} bytes")
    assert second[0].text.endswith(f"100% = {peak_bytes:,} bytes")
    assert first[2] == second[1] == NOTHING


def test_a_board_from_a_file_is_not_run_as_the_one_of_the_catalogue(
    campaign: CampaignDirectory, tmp_path: Path
) -> None:
    shutil.copytree(campaign.path, tmp_path / "tried")
    file = tmp_path / "tried" / "campaign.yaml"
    document = yaml.safe_load(file.read_text())
    document["boards"] = ["local.yaml"]
    file.write_text(yaml.safe_dump(document))
    text = reported(CampaignDirectory(file.parent), tmp_path / "report.html")
    commands = cells_in(text)[0]["commands"]
    assert words_of(commands[-1])[:2] == ["campaign", "run"]
    assert not any("run --schedule" in command for command in commands)


def test_an_unfinished_campaign_has_a_report(tmp_path: Path) -> None:
    directory = campaign_with_replays(Results(tmp_path))
    for cell in directory.design().cells[1:]:
        (directory.of(cell) / "cell.json").unlink()
    text = reported(directory, tmp_path / "report.html")
    assert re.search(r"\d waiting", text)


def test_a_control_whose_values_changed_is_a_failure(campaign: CampaignDirectory) -> None:
    result = read_campaign(campaign.path).cells[0]
    changed = {"control": True, "values_identical": False, "values_compared": True}
    control = result.repetitions[0].model_copy(update=changed)
    cell = figures_of(replace(result, controls=(control,)), 1, columns=10)
    (problem,) = problems_of([cell])
    assert problem.given_up
    assert "values differ" in problem.reason
    table = prediction_table([cell])
    assert table is not None
    compared = sum(each.values_compared for each in result.repetitions)
    assert table.rows[0][-1].text == f"{compared} of {compared + 1}"


@pytest.mark.parametrize("repetitions", [2, 3])
def test_intervals_over_repetitions_hold_what_they_state(
    campaign: CampaignDirectory, repetitions: int
) -> None:
    """Simulated: intervals over few repetitions hold the centre in 95 % of campaigns."""
    result = read_campaign(campaign.path).cells[0]
    rng = np.random.default_rng(repetitions)

    def repetition(time_s: float) -> Repetition:
        measured = Interval.exact(time_s)
        first = result.repetitions[0]
        compared = first.time_s.model_copy(update={"measured": measured})
        return first.model_copy(update={"time_s": compared})

    held, campaigns = 0, 80
    for _ in range(campaigns):
        drawn = np.exp(0.05 * rng.standard_normal(repetitions))
        cell = replace(result, repetitions=tuple(map(repetition, drawn.tolist())))
        figure = figures_of(cell, 1, columns=1).measured_time
        assert figure is not None
        held += figure.interval.low <= 1.0 <= figure.interval.high
    assert held >= 0.9 * campaigns


def test_one_repetition_gives_no_interval(campaign: CampaignDirectory) -> None:
    result = read_campaign(campaign.path).cells[0]
    figure = figures_of(replace(result, repetitions=result.repetitions[:1]), 1, 1).measured_time
    assert figure is not None
    assert figure.interval.low == figure.interval.high


def test_a_measured_profile_is_not_called_published(campaign: CampaignDirectory) -> None:
    result = read_campaign(campaign.path).cells[0]
    profile = made_up_profile([OpSpec.of("relu.forward", elements=64)], "measured")
    setting = Setting(board="bench", tags=(), profile=profile)
    facts = dict(facts_of(figures_of(replace(result, setting=setting), 1, columns=1)))
    assert facts["profile"] == "measured, in full in cells.json: local"


def test_another_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["campaign", "report", str(tmp_path)]) == 2
    assert "not the directory of a campaign" in capsys.readouterr().err
