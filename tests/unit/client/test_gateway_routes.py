"""Keys, policies and the audit log over the control namespace, by the typed client and by the verbs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from localllm.cli.main import main
from localllm.core.errors import BadRequest, Conflict, NotFound
from localllm.core.gateway import KeyRequest, KeyRules
from tests.unit.client.conftest import Live

ASK: dict[str, Any] = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}


async def chat(live: Live, key: str | None) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=live.client.base_url, headers=headers, timeout=30) as http:
        return await http.post("/v1/chat/completions", json=ASK)


async def test_a_key_from_its_making_to_its_end(live: Live) -> None:
    created = await live.client.create_key(KeyRequest(name="app", rules=KeyRules(audit=True)))
    assert (await live.client.keys()).keys == (created.info,)
    assert (await chat(live, None)).status_code == 401
    assert (await chat(live, created.key)).status_code == 200
    view = await live.client.gateway()
    audit = view.policies[0]
    assert (audit.name, audit.on, audit.keys, audit.figures["written"]) == ("audit", False, ("app",), 1)
    assert (view.keys, view.key_required) == (1, True)
    report = await live.client.audit()
    assert (report.lines, report.fault) == (1, None)
    assert (await live.client.revoke_key("app")).name == "app"
    assert (await chat(live, created.key)).status_code == 401


async def test_what_cannot_be_done_says_why(live: Live) -> None:
    await live.client.create_key(KeyRequest(name="app"))
    with pytest.raises(Conflict):
        await live.client.create_key(KeyRequest(name="app"))
    with pytest.raises(BadRequest):
        await live.client.create_key(KeyRequest(name="not a name"))
    with pytest.raises(NotFound):
        await live.client.revoke_key("nobody")


async def test_the_verbs(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    async def run(*arguments: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, list(arguments))
        return code, capsys.readouterr().out

    code, key = await run("keys", "create", "app", "--requests-per-minute", "5", "--mask-pii", "--audit")
    assert code == 0 and key.startswith("sk-localllm-")
    assert (await chat(live, key.strip())).status_code == 200
    code, listed = await run("keys", "list")
    assert "requests_per_minute 5, mask_pii on, audit on" in listed and key.strip() not in listed
    code, shown = await run("gateway", "--json")
    assert [p["name"] for p in json.loads(shown)["data"]["policies"]][:2] == ["audit", "access"]
    assert "the port wants one" in (await run("gateway"))[1]
    assert await run("audit", "verify") == (0, "1 line holds.\n")
    log = live.paths.audit_dir / "audit.jsonl"
    log.write_text(log.read_text().replace('"status":200', '"status":500'))
    code, verdict = await run("audit", "verify")
    assert code == 1 and "audit.jsonl, line 1: it was changed" in verdict
    assert (await run("keys", "revoke", "app", "--forget"))[0] == 0
    assert (await chat(live, None)).status_code == 200
