"""A headless Chromium, and a page that watches itself."""

import pytest
from playwright.sync_api import sync_playwright


# not for the session: while it is open its event loop runs in the tests' own thread
@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        # no sandbox: tests may run as root, and the pages are our own
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Open a file in a context of its own; anything it complains of or asks for fails the test."""
    contexts, complaints = [], []

    def open_file(path, **settings):
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.extend([request.url] * (request.url != path.as_uri())))
        page.goto(path.as_uri())
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert complaints == []
