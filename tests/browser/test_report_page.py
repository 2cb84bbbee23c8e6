"""The report page as a reader sees it: drawn, filtered, stepped through by keyboard, on a phone and on paper."""

import json
import re
from functools import reduce

import pytest
from example_run import HOSTILE, METHODS, default_rows, failed, served, write_run
from playwright.sync_api import expect

from testbed.report import write_reports

CHARTS = ("distribution", "strip", "attainment", "timeline", "stages", "kl", "agreement", "dppl", "levels")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = write_run(tmp_path_factory.mktemp("runs"), verdict="INVALID", reasons=["the link was late"])
    write_reports(path)
    return path


@pytest.fixture
def page(run, open_page):
    return open_page(run / "report.html", viewport={"width": 1200, "height": 900})


def at(inner, name):
    """One step of a JSON pointer."""
    return inner[int(name)] if isinstance(inner, list) else inner[name]


def results(page):
    return page.get_by_role("region", name="Results by method")


def marks(page, kind):
    return page.locator(f'#timeline [data-kind="{kind}"]').count()


def test_the_controls_have_names(page):
    for role, names in (("combobox", ("Method", "Request")), ("button", ("Previous", "Next")), ("checkbox", METHODS)):
        for name in names:
            expect(page.get_by_role(role, name=name)).to_have_count(1)
    expect(page.get_by_role("slider", name="Attainment at another SLO")).to_have_count(1)


def test_every_chart_is_drawn_and_named(page):
    assert page.locator(".chart > svg:is([role=img], [role=group])").count() == len(CHARTS)
    for chart in CHARTS:
        picture = page.locator(f'[data-chart="{chart}"] > svg')
        names = [page.locator(f"#{name}").text_content() for name in picture.get_attribute("aria-labelledby").split()]
        assert all(names)
        assert picture.locator("path, rect").count() > 2


def test_the_numbers_on_the_page_are_those_of_the_summary(page, run):
    summary = json.loads((run / "summary.json").read_text())
    shown = page.locator("data[data-pointer]").evaluate_all(
        "all => all.map((one) => [one.dataset.pointer, one.value, one.textContent])"
    )
    assert len(shown) > 150
    for table in page.locator("#verdict table, #ttft details:has-text('Attainment') table").all():
        # what is no figure of the summary is a count in words
        plain = [cell.inner_text() for cell in table.locator("td:not(:has(data))").all()]
        assert all(re.fullmatch(r"–|\d+ of \d+", text) for text in plain)
    for pointer, value, text in shown:
        wanted = reduce(at, pointer.split("/")[1:], summary)
        if wanted is None:
            assert (value, text) == ("", "–")
            continue
        assert float(value) == wanted
        # seconds, MB and per cent are shown for ms, bytes and shares, rounded
        number, digits = float(text.rstrip("%")), len(text.rstrip("%").partition(".")[2])
        assert any(abs(number - wanted * factor) <= 0.51 * 10**-digits for factor in (1, 100, 1e-3, 1e-6))
    assert page.locator("[data-pointer='/validity/verdict']").text_content() == summary["validity"]["verdict"]
    assert "the link was late" in page.locator(".validity").text_content()
    for method, figures in summary["methods"].items():
        row = results(page).locator(f'tr[data-method="{method}"]').text_content()
        assert f"{figures['requests'] - figures['violations']} of {figures['requests']}" in row


def test_a_method_that_is_unticked_leaves_tables_and_charts(page):
    assert page.locator('[data-chart="distribution"] [data-method="quant8"]').count() == 1
    page.get_by_role("checkbox", name="quant8").uncheck()
    assert page.locator('[data-chart="distribution"] [data-method="quant8"]').count() == 0
    assert page.locator('[data-chart="distribution"] [data-method="cachegen"]').count() == 1
    for row in page.locator('tr[data-method="quant8"]').all():
        assert not row.is_visible()
    assert "quant8" not in page.locator("#choose-method").inner_text()
    page.get_by_role("checkbox", name="quant8").check()
    assert results(page).locator('tr[data-method="quant8"]').is_visible()


def test_without_any_method_the_charts_say_so_and_come_back(page):
    for name in METHODS:
        page.get_by_role("checkbox", name=name).uncheck()
    assert page.locator("#timeline").inner_text() == "No method is shown."
    assert page.get_by_role("button", name="Next").is_disabled()
    page.get_by_role("checkbox", name="text").check()
    assert page.locator("#request-outcome").inner_text().startswith("Request 0, text.")


def test_every_request_of_every_method_has_its_timeline(page):
    for row in default_rows():
        page.locator("#choose-method").select_option(row.method)
        page.locator("#choose-request").select_option(str(row.request))
        outcome = page.locator("#request-outcome").inner_text()
        assert outcome.startswith(f"Request {row.request}, {row.method}.")
        assert ("missed" in outcome or "no first token" in outcome) == row.violation
        streamed = 3 * (row.method != "text")
        assert marks(page, "fetch") == marks(page, "decode") == streamed
        assert marks(page, "recompute") == 3 - streamed
        assert marks(page, "question_prefill") == (row.ttft_ms is not None)
        assert (row.error in page.locator("#request").inner_text()) or not row.error


def test_overlapping_fetches_have_bars_that_do_not_cover_each_other(page):
    page.locator("#choose-method").select_option("cachegen")
    [cancelled] = page.locator('#timeline [data-kind="fetch_cancelled"]').all()
    ends = cancelled.bounding_box()
    for fetch in page.locator('#timeline [data-kind="fetch"]').all():
        box = fetch.bounding_box()
        apart = box["y"] + box["height"] <= ends["y"] or ends["y"] + ends["height"] <= box["y"]
        assert apart


def test_events_of_kinds_not_known_and_failures_are_drawn(page):
    page.locator("#choose-method").select_option("cachegen")
    for kind in ("fetch_cancelled", "fetch_failed", "tea_break"):
        assert marks(page, kind) == 1
    assert "tea break" in page.locator("#timeline-legend").inner_text()
    page.locator("#request summary").click()
    assert "connection reset" in page.locator("#events").inner_text()


def test_the_levels_stand_beside_the_bars_as_text(page):
    page.locator("#choose-method").select_option("cachegen")
    assert "cachegen-1" in page.locator("#timeline svg").text_content()
    assert "cachegen-2" in page.locator("#timeline svg").text_content()


def test_a_mark_of_the_distribution_shows_its_request(page):
    page.locator('[data-chart="strip"] .point[data-method="quant8"]').last.click()
    assert page.locator("#request-outcome").inner_text().startswith("Request 1, quant8.")


MARKED = ("strip", "kl", "agreement", "dppl")


@pytest.mark.parametrize("chart", MARKED)
def test_every_mark_of_a_request_is_a_button_that_says_its_value(page, chart):
    points = page.locator(f'[data-chart="{chart}"]').get_by_role("button")
    done = [row for row in default_rows() if row.ttft_ms is not None]
    assert points.count() == len(done)
    names = {points.nth(place).get_attribute("aria-label") for place in range(points.count())}
    values = {
        "strip": lambda row: f"{row.ttft_ms / 1e3:.2f} s, {'missed' if row.violation else 'met'}",
        "kl": lambda row: f"{row.kl:#.3g}, 1.00 MB" if row.kl else "0.00, 1.00 MB",
        "agreement": lambda row: "0.900, 1.00 MB",
        "dppl": lambda row: "0.100, 1.00 MB",
    }
    assert names == {f"{row.method}, request {row.request}: {values[chart](row)}" for row in done}


@pytest.mark.parametrize("chart", MARKED)
def test_a_mark_is_reached_and_chosen_by_keyboard_alone(page, chart):
    points = page.locator(f'[data-chart="{chart}"] .point')
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.closest('[data-chart={chart}]') !== null"):
            break
    focused = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(focused) == points.first.get_attribute("aria-label")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused) == points.first.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == points.nth(1).get_attribute("aria-label")
    page.keyboard.press("End")
    assert page.evaluate(focused) == points.last.get_attribute("aria-label")
    # the chart stays one stop of the Tab key
    assert page.locator(f'[data-chart="{chart}"] [tabindex="0"]').count() == 1
    page.keyboard.press("Enter")
    assert page.locator("#request-outcome").inner_text().startswith("Request 2, cachegen.")
    assert page.evaluate("document.activeElement.id") == "timeline"


def test_the_keyboard_reaches_every_control_and_steps_through_the_requests(page):
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.value || ''"))
        if reached[-1] == "timeline":
            break
    order = ["main", *METHODS, "slo", "choose-method", "choose-request", "previous", "next", "timeline"]
    assert [name for name in reached if name in order] == order[1:]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"

    outcome = page.locator("#request-outcome")
    for key, wanted in (
        ("ArrowRight", "Request 1, cachegen."),
        ("ArrowLeft", "Request 0, cachegen."),
        ("ArrowLeft", "Request 2, cachegen."),
        ("ArrowUp", "Request 2, quant8."),
        ("ArrowDown", "Request 2, cachegen."),
        ("ArrowDown", "Request 2, text."),
    ):
        page.keyboard.press(key)
        assert outcome.inner_text().startswith(wanted)
    assert page.evaluate("document.activeElement.id") == "timeline"


def test_the_buttons_step_round_the_ends(page):
    for wanted in (1, 2, 0):
        page.get_by_role("button", name="Next").press("Enter")
        assert page.locator("#request-outcome").inner_text().startswith(f"Request {wanted}, cachegen.")
    page.get_by_role("button", name="Previous").press("Enter")
    assert page.locator("#request-outcome").inner_text().startswith("Request 2, cachegen.")


def test_the_slider_reads_the_attainment_at_another_slo(page):
    slider, shown = page.locator("#slo"), page.locator("#slo-attainment")
    assert shown.inner_text().split("\n") == ["text 0%", "quant8 0%", "cachegen 67%"]
    slider.press("End")
    assert shown.inner_text().split("\n") == ["text 100%", "quant8 67%", "cachegen 100%"]
    slider.press("Home")
    assert shown.inner_text().split("\n") == ["text 0%", "quant8 0%", "cachegen 0%"]


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_no_page_is_wider_than_its_window(run, open_page, width):
    page = open_page(run / "report.html", viewport={"width": width, "height": 740})
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for chart in page.locator(".chart > svg").all():
        box = chart.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width


def test_charts_follow_the_window(page):
    chart = page.locator('[data-chart="stages"] > svg')
    assert int(chart.get_attribute("width")) > 900
    page.set_viewport_size({"width": 500, "height": 900})
    # 500 less the padding of the body: the text keeps its size, as nothing is scaled
    expect(chart).to_have_attribute("width", "476")


def test_paper_shows_what_is_folded_and_no_controls(page):
    assert not page.locator("#events").is_visible()
    page.emulate_media(media="print")
    expect(page.locator("details:not([open])")).to_have_count(0)
    for shown in (".validity", "#events", "#ttft table", "#provenance table", ".chart > svg"):
        for one in page.locator(shown).all():
            assert one.is_visible()
    for hidden in ("nav", "#methods", "#choose-method", "#slo", "summary"):
        for one in page.locator(hidden).all():
            assert not one.is_visible()
    page.emulate_media(media="screen")
    expect(page.locator("details[open]")).to_have_count(0)


def colours(page):
    return page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")


def test_the_page_follows_the_readers_choice_of_dark_but_paper_is_white(run, open_page):
    light = colours(open_page(run / "report.html", color_scheme="light"))
    page = open_page(run / "report.html", color_scheme="dark")
    dark = colours(page)
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] != light[0]
    assert dark[1] != light[1]
    page.emulate_media(media="print", color_scheme="dark")
    assert colours(page) == light


def test_without_scripts_every_figure_is_still_there(run, open_page):
    page = open_page(run / "report.html", java_script_enabled=False)
    assert "need JavaScript" in page.locator(".notice").inner_text()
    assert results(page).locator("tbody tr").count() == len(METHODS)
    assert not page.locator("#choose-method").is_visible()


def test_names_and_errors_of_a_run_are_text_and_nothing_else(tmp_path, open_page):
    rows = [
        served(0, "cachegen", 1000.0, context=HOSTILE, levels={HOSTILE: 2}),
        failed(1, "cachegen", HOSTILE),
    ]
    path = write_run(tmp_path, rows, verdict="INVALID", reasons=[HOSTILE], name=HOSTILE)
    write_reports(path)
    page = open_page(path / "report.html")
    assert page.title().startswith("TTFT over the </script><script>document.title = 'owned'</script><!-- <b")
    page.locator("#choose-request").select_option("1")
    assert HOSTILE in page.locator("#request-outcome").text_content()
    assert page.locator("b[title]").count() == 0


def test_a_run_in_which_nothing_came_to_a_first_token_has_a_page(tmp_path, open_page):
    path = write_run(tmp_path, [failed(request, "quant8", "StoreError: gone") for request in range(2)])
    write_reports(path)
    page = open_page(path / "report.html")
    assert page.locator(".chart > svg").count() == len(CHARTS)
    assert "2 × no first token" in page.locator('[data-chart="strip"]').text_content()
    assert "Came to no first token" in page.locator("#request-outcome").inner_text()
