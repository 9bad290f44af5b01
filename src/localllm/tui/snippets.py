"""Ready-made ways to call the port, for the Server screen and the clipboard.

Each is complete: paste it and it runs. The key is written as the environment variable ``LOCALLLM_API_KEY`` when the
port asks for one, so that a copied snippet never carries a secret into a file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snippet:
    """``language`` is a Markdown fence name."""

    title: str
    language: str
    text: str


def snippets(base_url: str, model: str, *, needs_key: bool) -> tuple[Snippet, ...]:
    """One snippet per client for ``base_url`` (ends in ``/v1``) and ``model``."""
    key = "$LOCALLLM_API_KEY" if needs_key else "none"
    header = ' \\\n  -H "Authorization: Bearer $LOCALLLM_API_KEY"' if needs_key else ""
    python_key = 'os.environ["LOCALLLM_API_KEY"]' if needs_key else '"none"'
    python_import = "import os\n\n" if needs_key else ""
    js_key = "process.env.LOCALLLM_API_KEY" if needs_key else '"none"'
    return (
        Snippet(
            "curl",
            "sh",
            f"curl {base_url}/chat/completions{header} \\\n"
            '  -H "Content-Type: application/json" \\\n'
            f"""  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'""",
        ),
        Snippet(
            "python",
            "python",
            f"{python_import}from openai import OpenAI\n\n"
            f'client = OpenAI(base_url="{base_url}", api_key={python_key})\n'
            "stream = client.chat.completions.create(\n"
            f'    model="{model}", messages=[{{"role": "user", "content": "Hello"}}], stream=True\n)\n'
            'for chunk in stream:\n    print(chunk.choices[0].delta.content or "", end="", flush=True)',
        ),
        Snippet(
            "js",
            "js",
            'import OpenAI from "openai";\n\n'
            f'const client = new OpenAI({{ baseURL: "{base_url}", apiKey: {js_key} }});\n'
            "const stream = await client.chat.completions.create({\n"
            f'  model: "{model}", messages: [{{ role: "user", content: "Hello" }}], stream: true,\n}});\n'
            'for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta?.content ?? "");',
        ),
        Snippet(
            "env",
            "sh",
            f'export OPENAI_BASE_URL="{base_url}"\nexport OPENAI_API_KEY="{key}"\nexport OPENAI_MODEL="{model}"',
        ),
        Snippet(
            "aider",
            "sh",
            f'export OPENAI_API_BASE="{base_url}"\nexport OPENAI_API_KEY="{key}"\naider --model "openai/{model}"',
        ),
        Snippet(
            "continue",
            "yaml",
            "# ~/.continue/config.yaml\nmodels:\n"
            f"  - name: {model}\n    provider: openai\n    model: {model}\n    apiBase: {base_url}\n"
            + ("    apiKey: ${{ secrets.LOCALLLM_API_KEY }}" if needs_key else "    apiKey: none"),
        ),
        Snippet(
            "llm",
            "yaml",
            "# extra-openai-models.yaml in the folder that `dirname $(llm logs path)` names\n"
            f"- model_id: {model}\n  model_name: {model}\n  api_base: {base_url}"
            + ("\n  api_key_name: localllm" if needs_key else ""),
        ),
    )
