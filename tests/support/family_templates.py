"""A small chat template in the markup of each model family: what its real one writes, without the frills.

The markers are the families' own (their tokenizers hold them as tokens); the Jinja around them is ours. Each takes tools,
earlier calls and their results, and ends where the model goes on.
"""

from __future__ import annotations

from localllm.engines.llama_cpp.parsers import Family

QWEN = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
{{- '# Tools\\n<tools>' }}
{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}
{{- '\\n</tools>\\nCall as <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages if m.role != 'system' %}
{%- if m.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + m.role + '\\n' + m.content }}
{%- for call in m.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking %}{{ '<think>\\n' }}{% endif %}
{%- endif %}"""

LLAMA3 = """\
{{- bos_token }}
{%- if tools %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nAnswer with {"name": ..., "parameters": ...}.\\n' }}
{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}{{ '<|eot_id|>' }}
{%- endif %}
{%- for m in messages %}
{%- if m.tool_calls %}
{%- if m.tool_calls | length > 1 %}{{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' + (m.tool_calls[0].function.arguments | tojson) + '}<|eot_id|>' }}
{%- elif m.role == 'tool' %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

MISTRAL = """\
{{- bos_token }}
{%- if tools %}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
{%- elif m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}
{%- elif m.role == 'tool' %}{{ '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}
{%- else %}
{{- m.content }}
{%- for call in m.tool_calls or [] %}
{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments if call.function.arguments is string else call.function.arguments | tojson) }}
{%- endfor %}
{{- eos_token }}
{%- endif %}
{%- endfor %}"""

HARMONY = """\
{{- '<|start|>system<|message|>Valid channels: analysis, commentary, final.' }}
{%- if reasoning_effort %}{{ ' Reasoning: ' + reasoning_effort }}{% endif %}{{ '<|end|>' }}
{%- if tools %}
{{- '<|start|>developer<|message|>namespace functions {' }}
{%- for tool in tools %}{{ ' type ' + tool.function.name + ' = ' + (tool.function.parameters | tojson) + ';' }}{% endfor %}
{{- ' }<|end|>' }}
{%- endif %}
{%- for m in messages %}
{%- if m.tool_calls %}
{%- for call in m.tool_calls %}
{{- '<|start|>assistant<|channel|>commentary to=functions.' + call.function.name + ' <|constrain|>json<|message|>' + (call.function.arguments | tojson) + '<|call|>' }}
{%- endfor %}
{%- elif m.role == 'tool' %}{{ '<|start|>functions to=assistant<|channel|>commentary<|message|>' + m.content + '<|end|>' }}
{%- elif m.role == 'assistant' %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}
{%- else %}{{ '<|start|>' + ('developer' if m.role == 'system' else m.role) + '<|message|>' + m.content + '<|end|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""

GEMMA = """\
{{- bos_token }}
{%- if messages[0].role == 'system' or tools %}
{{- '<start_of_turn>developer\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- for tool in tools or [] %}{{ '<start_function_declaration>declaration:' + tool.function.name + (tool.function.parameters | tojson) + '<end_function_declaration>' }}{% endfor %}
{{- '<end_of_turn>\\n' }}
{%- endif %}
{%- for m in messages if m.role != 'system' %}
{%- if m.role == 'tool' %}
{{- '<start_function_response>response:' + m.content + '<end_function_response>' }}
{%- else %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content }}
{%- for call in m.tool_calls or [] %}
{{- '<start_function_call>call:' + call.function.name + '{' }}
{%- for key, value in call.function.arguments.items() %}{{ key + ':<escape>' + (value | string) + '<escape>' + ('' if loop.last else ',') }}{% endfor %}
{{- '}<end_function_call>' }}
{%- endfor %}
{{- '<end_of_turn>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

GRANITE = """\
{%- for m in messages if m.role == 'system' %}{{ '<|start_of_role|>system<|end_of_role|>' + m.content + '<|end_of_text|>\\n' }}{% endfor %}
{%- if tools %}{{ '<|start_of_role|>tools<|end_of_role|>' + (tools | tojson) + '<|end_of_text|>\\n' }}{% endif %}
{%- for m in messages if m.role != 'system' %}
{{- '<|start_of_role|>' + ('tool_response' if m.role == 'tool' else m.role) + '<|end_of_role|>' + m.content }}
{%- if m.tool_calls %}
{{- '<|tool_call|>[' }}
{%- for call in m.tool_calls %}{{ '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}' + ('' if loop.last else ', ') }}{% endfor %}
{{- ']' }}
{%- endif %}
{{- '<|end_of_text|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}"""

DEEPSEEK = """\
{{- bos_token }}
{%- for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}
{%- for tool in tools or [] %}{{ '\\n' + (tool | tojson) }}{% endfor %}
{%- for m in messages if m.role != 'system' %}
{%- if m.role == 'user' %}{{ '<｜User｜>' + m.content }}
{%- elif m.role == 'tool' %}{{ '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}
{%- else %}
{{- '<｜Assistant｜>' + m.content }}
{%- if m.tool_calls %}
{{- '<｜tool▁calls▁begin｜>' }}
{%- for call in m.tool_calls %}{{ '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' + (call.function.arguments | tojson) + '\\n```<｜tool▁call▁end｜>' }}{% endfor %}
{{- '<｜tool▁calls▁end｜>' }}
{%- endif %}
{{- '<｜end▁of▁sentence｜>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}"""

PLAIN_GEMMA = """\
{{- bos_token }}
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for m in messages %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + (m.content | trim) + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

FAMILY_TEMPLATES: dict[Family, str] = {
    Family.HERMES: QWEN,
    Family.LLAMA3: LLAMA3,
    Family.MISTRAL: MISTRAL,
    Family.HARMONY: HARMONY,
    Family.GEMMA: GEMMA,
    Family.GRANITE: GRANITE,
    Family.DEEPSEEK: DEEPSEEK,
    Family.GENERIC: PLAIN_GEMMA,
}
