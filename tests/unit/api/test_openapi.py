"""The port's OpenAPI document is about the routes that there are, and the answers are as it says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from starlette.routing import Route

from localllm.api.app import port_routes
from localllm.api.openapi import document
from localllm.api.v1.schema_check import violation
from tests.support.script import CallTool, Reasoning, Text
from tests.unit.api.conftest import MODEL, PortUnderTest

ASK = [{"role": "user", "content": "hello"}]
CALLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": ASK, "logprobs": True, "top_logprobs": 1},
    "/v1/completions": {"prompt": "hello", "logprobs": 1},
    "/v1/responses": {"input": "hello", "include": ["message.output_text.logprobs"]},
    "/v1/messages": {"messages": ASK, "max_tokens": 50},
    "/v1/messages/count_tokens": {"messages": ASK},
    "/v1/embeddings": {"input": ["a", "b"]},
    "/v1/tokenize": {"content": "hello"},
    "/v1/detokenize": {"tokens": [1]},
}


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(document()))
    return made


def schema(described: dict[str, Any], path: str, method: str, status: int) -> dict[str, Any]:
    reply = described["paths"][path][method]["responses"][str(status)]["content"]["application/json"][
        "schema"
    ]
    return {**reply, "components": described["components"]}


def test_every_route_is_described_and_nothing_else(port: PortUnderTest, described: dict[str, Any]) -> None:
    routes = {
        (re.sub(r":path}", "}", route.path), method)
        for route in port_routes(port.runtime)
        if isinstance(route, Route) and route.path.startswith("/v1/") and not route.path.endswith(".json")
        for method in (route.methods or set()) - {"HEAD"}
    }
    said = {(path, method.upper()) for path, item in described["paths"].items() for method in item}
    assert said == routes


def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(described)))
    assert len(references) > 30
    missing = {r for r in references if r.rpartition("/")[2] not in described["components"]["schemas"]}
    assert missing == set()
    ids = [op["operationId"] for item in described["paths"].values() for op in item.values()]
    assert len(set(ids)) == len(ids)


async def test_it_is_served(port: PortUnderTest, described: dict[str, Any]) -> None:
    for path in ("/openapi.json", "/v1/openapi.json"):
        assert (await port.client.get(path)).json() == described


@pytest.mark.parametrize("path", CALLS)
async def test_answers_and_refusals_are_as_described(
    port: PortUnderTest, described: dict[str, Any], path: str
) -> None:
    body = {"model": MODEL, **CALLS[path]}
    if "tokens" in body:
        text = {"model": MODEL, "content": "hello"}
        body["tokens"] = (await port.client.post("/v1/tokenize", json=text)).json()["tokens"]
    port.engine.enqueue(Reasoning("hm"), Text("one two"), CallTool("weather", "{}"))
    answer = await port.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert violation(answer.json(), schema(described, path, "post", 200)) is None
    for wrong, status in (({"model": MODEL}, 400), ({**body, "model": "nothing"}, 404)):
        refused = await port.client.post(path, json=wrong)
        assert refused.status_code == status
        assert violation(refused.json(), schema(described, path, "post", status)) is None


async def test_requests_of_these_tests_are_as_described(described: dict[str, Any]) -> None:
    for path, body in CALLS.items():
        content = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        whole = {**content["schema"], "components": described["components"]}
        assert violation({"model": MODEL, **body}, whole) is None
        assert violation({"model": 5, **body}, whole) is not None


async def test_the_other_answers(port: PortUnderTest, described: dict[str, Any]) -> None:
    made = (await port.client.post("/v1/responses", json={"model": MODEL, "input": "hi"})).json()["id"]
    for method, real, path, status in (
        ("get", "/v1/models", "/v1/models", 200),
        ("get", f"/v1/models/{MODEL}", "/v1/models/{model}", 200),
        ("get", "/v1/models/nothing", "/v1/models/{model}", 404),
        ("get", f"/v1/responses/{made}", "/v1/responses/{id}", 200),
        ("delete", f"/v1/responses/{made}", "/v1/responses/{id}", 200),
        ("get", "/v1/health", "/v1/health", 200),
        ("get", "/v1/ready", "/v1/ready", 200),
    ):
        answer = await port.client.request(method, real)
        assert answer.status_code == status, real
        assert violation(answer.json(), schema(described, path, method, status)) is None
