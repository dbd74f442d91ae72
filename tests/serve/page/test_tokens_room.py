"""The Tokens room in a real browser."""

from playwright.sync_api import expect


def test_tokens_as_you_type_and_the_merges_of_one(visit, language_bundle):
    page = visit("#tokens").page
    text = "The cat\nsat 😀"
    page.fill("#text", text)
    tokenizer = language_bundle.tokenizer
    ids = tokenizer.encode(text)
    expect(page.locator(".chip")).to_have_count(len(ids))
    assert page.locator(".chip-id").all_inner_texts() == [str(i) for i in ids]
    assert page.locator(".chip").last.get_attribute("title") == "bytes " + tokenizer.vocab[
        ids[-1]
    ].hex(" ")
    place = ids.index(tokenizer.encode(" cat")[0])
    page.locator(".chip").nth(place).click()
    expect(page.locator(".merge-steps li")).to_have_count(len(tokenizer.vocab[ids[place]]))
    page.get_by_role("button", name="Back").click()
    expect(page.locator(".merge-steps li")).to_have_count(len(tokenizer.vocab[ids[place]]) - 1)


def test_a_link_holds_the_text(visit):
    page = visit("#tokens?text=hello%20there").page
    expect(page.locator("#text")).to_have_value("hello there")
    expect(page.locator(".chip").first).to_be_visible()
