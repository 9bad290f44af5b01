"""Every error of the tree has an answer: a status that is meant, a type, and headers that say whether to retry."""

from __future__ import annotations

import json

import msgspec
import pytest
from starlette.exceptions import HTTPException

from localllm.api import errors as api_errors
from localllm.api.errors import (
    as_error,
    error_object,
    error_response,
    from_validation_error,
    status_of,
    type_of,
)
from localllm.core import errors
from localllm.core.errors import LocalLLMError, all_errors, from_code
from localllm.core.openai import ChatRequest


@pytest.mark.parametrize("code", sorted(all_errors()))
def test_every_error_has_an_answer(code: str) -> None:
    error = from_code(code, "It happened.", hint="Do this.", details={"figure": 1})
    response = error_response(error)
    body = json.loads(bytes(response.body))["error"]
    assert body == {
        "message": "It happened.",
        "type": type_of(error),
        "param": None,
        "code": code,
        "hint": "Do this.",
        "details": {"figure": 1},
    }
    assert 400 <= response.status_code < 600
    assert (body["type"] == "server_error") == (response.status_code >= 500)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.BadTemplate("x"), 400),
        (errors.ContextLengthExceeded(9, 5), 400),
        (errors.ModelNotFound("x"), 404),
        (errors.Unauthorized("x"), 401),
        (errors.Forbidden("x"), 403),
        (errors.Conflict("x"), 409),
        (errors.ModelChanged("x"), 409),
        (errors.QueueFull("x", retry_after_s=3.2), 429),
        (errors.EngineCrashed("x"), 500),
        (errors.EngineStalled("x"), 504),
        (errors.ShuttingDown("x"), 503),
        (api_errors.BodyTooLarge(5), 413),
        (api_errors.UnsupportedMediaType("x"), 415),
        (api_errors.MethodNotAllowed("GET"), 405),
        (api_errors.RequestTimeout("x"), 408),
        (LocalLLMError("x"), 500),
    ],
)
def test_statuses(error: LocalLLMError, status: int) -> None:
    assert status_of(error) == status


def test_retry_headers() -> None:
    busy = error_response(errors.QueueFull("x", retry_after_s=3.2)).headers
    assert (busy["retry-after"], busy["retry-after-ms"]) == ("4", "3200")
    assert "x-should-retry" not in busy
    spent = error_response(errors.QuotaExceeded("x", retry_after_s=None))
    assert "retry-after" not in spent.headers
    assert spent.headers["x-should-retry"] == "false"
    assert json.loads(bytes(spent.body))["error"]["type"] == "insufficient_quota"
    assert error_response(errors.EngineCrashed("x")).headers["x-should-retry"] == "false"
    assert "retry-after" in error_response(errors.ShuttingDown("x")).headers


def test_what_nobody_foresaw_says_nothing_of_itself() -> None:
    body = error_object(as_error(RuntimeError("secret /path and prompt")))
    assert "secret" not in json.dumps(body)
    assert body["code"] == "internal_error"


def test_details_can_hold_anything() -> None:
    error = LocalLLMError("x", details={"path": object(), "bytes": b"\xff"})
    assert error_response(error).status_code == 500


def test_the_routers_own_errors() -> None:
    assert status_of(as_error(HTTPException(404))) == 404
    wrong_method = error_response(HTTPException(405, headers={"Allow": "GET"}))
    assert (wrong_method.status_code, wrong_method.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": "x"}, "messages"),
        ({}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [], "logit_bias": {"1": 1000}}, "logit_bias"),
        ([], None),
    ],
)
def test_validation_errors_name_the_field(body: object, param: str | None) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(body, ChatRequest)
    error = from_validation_error(raised.value)
    assert error.param == param
    assert "$" not in error.message and error.message.endswith(".")


def test_the_engines_log_is_for_the_control_namespace_and_not_for_clients() -> None:
    error = errors.LoadFailed("no", details={"exit_code": 1, "stderr_tail": "/home/somebody/m.gguf"})
    assert error_object(error)["details"] == error.details
    assert error_object(error, hint_in_message=True)["details"] == {"exit_code": 1}
