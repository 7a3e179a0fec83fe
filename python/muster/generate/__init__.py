"""Generation on clusters: engines that are replicas of a scheduler.

HttpEngine: a worker class for servers that speak OpenAI's, SGLang's, vLLM's or
llama.cpp's HTTP.
"""

from muster.generate.http_client import ServerError, ServerUnreachable
from muster.generate.http_engine import HttpEngine

__all__ = ["HttpEngine", "ServerError", "ServerUnreachable"]
