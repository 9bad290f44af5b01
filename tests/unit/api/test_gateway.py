"""The policies at the port: what a client sees of each, alone and together."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from localllm.core.config import GatewaySettings
from localllm.core.errors import Forbidden
from localllm.core.gateway import KeyRequest, KeyRules
from localllm.core.generation import ChatPrompt, GenerationRequest, Sampling, TextPrompt, Tier
from localllm.service.gateway.access import Access
from localllm.service.gateway.caching import Caching
from localllm.service.gateway.exact_cache import ExactCache
from localllm.service.gateway.masking import Masking
from localllm.service.gateway.policy import Exchange
from localllm.service.gateway.rules import Rules
from localllm.service.pipeline import Call
from tests.support.script import CallTool, Flood, Reasoning, Text
from tests.unit.api.conftest import MODEL, OpenPort, PortUnderTest, events_of

MAIL = "jane.doe@example.org"


def opened(open_port: OpenPort, **settings: Any) -> PortUnderTest:
    port: PortUnderTest = open_port(gateway=GatewaySettings(**settings))
    return port


def with_key(port: PortUnderTest, name: str = "app", **rules: Any) -> dict[str, str]:
    created = port.runtime.keys.create(KeyRequest(name=name, rules=KeyRules(**rules)))
    return {"authorization": f"Bearer {created.key}"}


async def ask(
    port: PortUnderTest, content: str = "hello", headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}
    return await port.client.post("/v1/chat/completions", json=body, headers=headers)


def text_of(events: list[Any]) -> str:
    return "".join(
        e["choices"][0]["delta"].get("content", "") for e in events if e != "[DONE]" and e["choices"]
    )


def answer(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


# ---------------------------------------------------------------- off


async def test_nothing_is_added_while_every_policy_is_off(port: PortUnderTest) -> None:
    response = await port.chat(f"write to {MAIL}", temperature=0)
    assert MAIL in answer(response)
    assert not [name for name in response.headers if name.startswith(("x-ratelimit", "x-localllm-cache"))]
    assert not any(policy.on for policy in port.runtime.gateway.view().policies)


# ---------------------------------------------------------------- keys


async def test_the_first_key_closes_the_port_and_revoking_it_does_not_open_it(port: PortUnderTest) -> None:
    assert (await ask(port)).status_code == 200
    key = with_key(port)
    assert (await ask(port)).status_code == 401
    assert (await ask(port, headers=key)).status_code == 200
    assert port.records.all[-1].client is not None and port.records.all[-1].client.startswith("key:app ")
    port.runtime.keys.revoke("app")
    assert (await ask(port, headers=key)).status_code == 401
    assert (await ask(port)).status_code == 401
    port.runtime.keys.revoke("app", forget=True)
    assert (await ask(port)).status_code == 200


async def test_a_named_key_is_no_admin_key(port: PortUnderTest) -> None:
    response = await port.client.get("/localllm/state", headers=with_key(port))
    assert response.status_code == 401


async def test_a_key_is_held_to_its_models_and_tier(port: PortUnderTest) -> None:
    key = with_key(port, models=(MODEL,), tier=Tier.FLEX)
    assert (await ask(port, headers=key, service_tier="priority")).json()["service_tier"] == "flex"
    refused = await ask(port, headers=key, model="org/model:Q8_0")
    assert refused.status_code == 403
    assert refused.json()["error"]["param"] == "model"
    assert (port.records.all[-1].status, port.records.all[-1].error_code) == (403, "forbidden")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "keep_alive": "5m"}),
        ("/v1/tokenize", {"content": "x"}),
        ("/v1/detokenize", {"tokens": [1]}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/embeddings", {"input": "x"}),
        ("/api/generate", {}),
    ],
)
async def test_nothing_loads_a_model_that_a_key_may_not_use(
    port: PortUnderTest, path: str, fields: dict[str, Any]
) -> None:
    key = with_key(port, models=("org/model:Q8_0",))
    refused = await port.client.post(path, json={"model": MODEL, **fields}, headers=key)
    assert refused.status_code == 403, refused.text
    assert port.engine.loads == []


async def test_an_alias_leads_no_key_past_its_list_and_is_not_cached(
    port: PortUnderTest, tmp_path: Path
) -> None:
    other = "org/model:Q8_0"
    reach = {"both": (MODEL, other), "one": (MODEL,), MODEL: (MODEL,), other: (other,)}
    access = Access(lambda name: reach[name])

    def may(model: str, *listed: str) -> bool:
        try:
            access.check(model, Rules(models=listed))
        except Forbidden:
            return False
        return True

    assert may("one", MODEL) and may("both", MODEL, other) and may("both", "both") and may(MODEL, "both")
    assert not may("both", MODEL) and not may(other, "one")
    caching = Caching(
        ExactCache(max_bytes=1 << 20, ttl_s=60), port.runtime.manager.resolve, lambda name: (MODEL, other)
    )
    call = Call(
        id="r",
        endpoint="test",
        model=MODEL,
        request=GenerationRequest(request_id="r", prompt=TextPrompt("x"), sampling=Sampling(temperature=0)),
    )
    exchange = Exchange(call=call, rules=Rules(cache=True), holder="h", address="a")
    for _ in range(2):
        events = caching.around(exchange, lambda: port.runtime.pipeline.generate(call))
        assert [event async for event in events]
    assert port.engine.calls == 2 and exchange.headers == {}


async def test_a_keys_answers_are_capped(port: PortUnderTest) -> None:
    key = with_key(port, max_output_tokens=3)
    port.engine.when("flood", Flood(100))
    choice = (await ask(port, "flood", headers=key, max_tokens=50)).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert port.engine.requests[-1].max_tokens == 3
    await ask(port, headers=key, max_tokens=2)
    assert port.engine.requests[-1].max_tokens == 2


# ---------------------------------------------------------------- limits


async def test_requests_are_limited_per_key(port: PortUnderTest) -> None:
    one, two = with_key(port, "one", requests_per_minute=2), with_key(port, "two")
    first = await ask(port, headers=one)
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert re.fullmatch(r"\d+\.\ds", first.headers["x-ratelimit-reset-requests"])
    await ask(port, headers=one)
    refused = await ask(port, headers=one, stream=True)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert 0 < int(refused.headers["retry-after-ms"]) <= 30_000
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert refused.headers["x-should-retry"] == "true"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert (await ask(port, headers=two)).status_code == 200
    assert port.engine.calls == 3


async def test_a_spent_quota_is_not_worth_a_retry(port: PortUnderTest) -> None:
    key = with_key(port, daily_tokens=1)
    assert (await ask(port, headers=key)).status_code == 200
    refused = await ask(port, headers=key)
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "insufficient_quota")
    assert refused.headers["x-should-retry"] == "false"


async def test_addresses_are_limited_by_the_settings_and_embeddings_count(open_port: OpenPort) -> None:
    port = opened(open_port, requests_per_minute=2)
    body = {"model": MODEL, "input": "a text"}
    embedded = await port.client.post("/v1/embeddings", json=body)
    assert embedded.headers["x-ratelimit-remaining-requests"] == "1"
    assert (await port.chat()).status_code == 200
    assert (await port.client.post("/v1/embeddings", json=body)).status_code == 429


async def test_a_place_is_given_back_however_a_request_ends(port: PortUnderTest) -> None:
    key = with_key(port, concurrent_requests=1)
    for _ in range(3):
        assert (await ask(port, "x " * 900, headers=key)).json()["error"]["code"] == "context_length_exceeded"
        assert (await ask(port, headers=key)).status_code == 200


# ---------------------------------------------------------------- cache


async def test_a_repeated_question_is_answered_from_memory(open_port: OpenPort) -> None:
    port = opened(open_port, cache=True)
    port.engine.enqueue(Text("one two three"))
    first = await ask(port, temperature=0)
    second = await ask(port, temperature=0)
    assert (first.headers["x-localllm-cache"], second.headers["x-localllm-cache"]) == ("miss", "hit")
    assert answer(first) == answer(second) == "one two three"
    assert first.json()["usage"] == second.json()["usage"]
    assert port.engine.calls == 1
    assert [record.status for record in port.records.all] == [200, 200]


async def test_a_hit_is_streamed_as_a_stream(open_port: OpenPort) -> None:
    port = opened(open_port, cache=True)
    port.engine.enqueue(Text("one two three"))
    whole = answer(await ask(port, seed=7))
    response = await ask(port, seed=7, stream=True)
    events = events_of(response)
    assert response.headers["x-localllm-cache"] == "hit"
    assert text_of(events) == whole
    assert len([e for e in events if e != "[DONE]"]) == 5
    assert events[-1] == "[DONE]"


async def test_what_is_not_determined_is_asked_again(open_port: OpenPort) -> None:
    port = opened(open_port, cache=True)
    assert "x-localllm-cache" not in (await ask(port, temperature=0.5)).headers
    await ask(port, temperature=0.5)
    assert port.engine.calls == 2


async def test_answers_are_not_shared_between_keys(open_port: OpenPort) -> None:
    port = opened(open_port, cache=True)
    one, two, none = with_key(port, "one"), with_key(port, "two"), with_key(port, "none", cache=False)
    assert (await ask(port, headers=one, temperature=0)).headers["x-localllm-cache"] == "miss"
    assert (await ask(port, headers=two, temperature=0)).headers["x-localllm-cache"] == "miss"
    assert "x-localllm-cache" not in (await ask(port, headers=none, temperature=0)).headers


# ---------------------------------------------------------------- masking


async def test_the_model_never_sees_personal_data_and_the_client_does(open_port: OpenPort) -> None:
    port = opened(open_port, mask_pii=True)
    response = await ask(port, f"write to {MAIL}, not to [EMAIL_1]")
    prompt = port.engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages[-1].content == "write to [EMAIL_2], not to [EMAIL_1]"
    assert answer(response) == f"You said: write to {MAIL}, not to [EMAIL_1]"


async def test_streams_text_reasoning_and_arguments_are_restored(open_port: OpenPort) -> None:
    port = opened(open_port, mask_pii=True)
    port.engine.enqueue(
        Reasoning("they are [EMA"),
        Reasoning("IL_1] I think"),
        Text("to [EMAIL"),
        Text("_1] and [EMAIL_9] and ["),
        CallTool("send", '{"to":"[EMAIL_1]"}'),
    )
    tool = {"type": "function", "function": {"name": "send"}}
    events = events_of(await ask(port, f"I am {MAIL}", stream=True, tools=[tool]))
    deltas = [e["choices"][0]["delta"] for e in events if e != "[DONE]"]
    assert "".join(d.get("reasoning_content", "") for d in deltas) == f"they are {MAIL} I think"
    assert "".join(d.get("content", "") for d in deltas) == f"to {MAIL} and [EMAIL_9] and ["
    arguments = "".join(call["function"]["arguments"] for d in deltas for call in d.get("tool_calls", ()))
    assert json.loads(arguments) == {"to": MAIL}


async def test_earlier_arguments_are_masked_as_what_they_mean(open_port: OpenPort) -> None:
    port = opened(open_port, mask_pii=True)
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": json.dumps({"a": f"\n{MAIL}"})},
    }
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": f"sent to {MAIL}"},
    ]
    body = {"model": MODEL, "messages": messages}
    assert (await port.client.post("/v1/chat/completions", json=body)).status_code == 200
    prompt = port.engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    assert json.loads(prompt.messages[1].tool_calls[0].arguments) == {"a": "\n[EMAIL_1]"}
    assert prompt.messages[2].content == "sent to [EMAIL_1]"


async def test_what_cannot_be_looked_into_is_refused(open_port: OpenPort) -> None:
    port = opened(open_port, mask_pii=True)
    refused = await port.client.post("/v1/completions", json={"model": MODEL, "prompt": [1, 2]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")
    refused = await port.client.post("/v1/embeddings", json={"model": MODEL, "input": [1, 2]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")
    assert (await port.client.post("/v1/embeddings", json={"model": MODEL, "input": f"of {MAIL}"})).is_success
    assert port.engine.embedded == ["of [EMAIL_1]"]


async def test_the_cache_keeps_no_personal_data(open_port: OpenPort) -> None:
    port = opened(open_port, mask_pii=True, cache=True)
    assert answer(await ask(port, f"I am {MAIL}", temperature=0)) == f"You said: I am {MAIL}"
    other = await ask(port, "I am joe@example.net", temperature=0)
    assert other.headers["x-localllm-cache"] == "hit"
    assert answer(other) == "You said: I am joe@example.net"


# ---------------------------------------------------------------- content rules


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_ends_before_what_may_not_be_said(open_port: OpenPort, stream: bool) -> None:
    port = opened(open_port, blocked_patterns=(r"secret\s+word",))
    port.engine.enqueue(Text("this is the secret"), Text(" word and more"))
    response = await ask(port, stream=stream)
    if stream:
        events = events_of(response)
        assert text_of(events) == "this is the "
        assert events[-2]["choices"][0]["finish_reason"] == "content_filter"
        assert events[-1] == "[DONE]"
    else:
        choice = response.json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("this is the ", "content_filter")
        assert response.json()["usage"]["completion_tokens"] > 0


async def test_other_answers_come_out_whole(open_port: OpenPort) -> None:
    port = opened(open_port, blocked_patterns=("never",))
    port.engine.when("flood", Flood(100))
    assert text_of(events_of(await ask(port, "flood", stream=True))) == " word" * 100


async def test_only_the_choice_that_said_it_ends(open_port: OpenPort) -> None:
    port = opened(open_port, blocked_patterns=("hello",))
    choices = (await ask(port, n=2)).json()["choices"]
    assert [c["finish_reason"] for c in choices] == ["content_filter"] * 2


# ---------------------------------------------------------------- audit, and policies that break


async def test_every_end_is_in_the_audit_log(open_port: OpenPort) -> None:
    port = opened(open_port, audit=True, requests_per_minute=2, mask_pii=True)
    await ask(port, f"I am {MAIL}")
    await ask(port, "x " * 900)
    await ask(port)
    report = await port.runtime.gateway.audit()
    assert (report.lines, report.fault) == (3, None)
    text = (Path(report.folder) / "audit.jsonl").read_text()
    entries = [json.loads(line)["entry"] for line in text.splitlines()]
    assert [entry["status"] for entry in entries] == [200, 400, 429]
    assert entries[0]["masked"] == {"EMAIL": 1}
    assert MAIL not in text and "hello" not in text


async def test_without_the_audit_log_nothing_is_answered(open_port: OpenPort, tmp_path: Path) -> None:
    port = opened(open_port, audit=True)
    (tmp_path / "audit").write_text("a file where the folder should be")
    for calls in (1, 1):  # the first is answered before the log is found broken; then nothing is let past
        refused = await ask(port)
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, "policy_failed")
        assert port.engine.calls == calls
    (tmp_path / "audit").unlink()
    assert (await ask(port)).status_code == 200
    assert (await port.runtime.gateway.audit()).lines == 2


async def test_a_policy_that_raises_lets_nothing_past(
    open_port: OpenPort, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = opened(open_port, mask_pii=True)

    def broken(*_: object) -> None:
        raise sqlite3.OperationalError("unforeseen")

    monkeypatch.setattr(Masking, "_count", broken)
    refused = await ask(port)
    assert (refused.status_code, refused.json()["error"]["code"]) == (500, "policy_failed")
    assert refused.json()["error"]["details"] == {"policy": "masking"}
    assert "unforeseen" not in refused.text
    assert port.engine.calls == 0
    assert "masking" in [getattr(record, "policy", None) for record in caplog.records]


async def test_the_view_names_policies_in_their_order(open_port: OpenPort) -> None:
    port = opened(open_port, cache=True)
    with_key(port, "careful", mask_pii=True, cache=False)
    view = port.runtime.gateway.view()
    assert [policy.name for policy in view.policies] == [
        "audit", "access", "limits", "length", "content_rules", "masking", "cache",
    ]  # fmt: skip
    by_name = {policy.name: policy for policy in view.policies}
    assert by_name["cache"].on and by_name["cache"].keys == ()
    assert not by_name["masking"].on and by_name["masking"].keys == ("careful",)
