"""Generation on clusters: prompts in, finished groups of samples out.

    sched = muster.generate.Scheduler(actor_infer, slots=64)
    group = sched.submit(prompt, n=8, key=prompt_id, max_new_tokens=4096)
    batch = sched.get_batch(groups=32)

HttpEngine: a worker class for servers that speak OpenAI's, SGLang's, vLLM's or
llama.cpp's HTTP. doc/generation.md has the rules.
"""

from muster._cluster.role import generation as settings
from muster.generate.group import (
    Group,
    GroupCancelled,
    GroupDeadline,
    GroupDropped,
    Groups,
    Sample,
)
from muster.generate.http_client import RequestRefused, ServerError, ServerUnreachable
from muster.generate.http_engine import HttpEngine
from muster.generate.lease import Lease
from muster.generate.scheduler import Scheduler
from muster.generate.session import Session
from muster.generate.weights import Update

__all__ = [
    "Group",
    "GroupCancelled",
    "GroupDeadline",
    "GroupDropped",
    "Groups",
    "HttpEngine",
    "Lease",
    "RequestRefused",
    "Sample",
    "Scheduler",
    "ServerError",
    "ServerUnreachable",
    "Session",
    "Update",
    "settings",
]
