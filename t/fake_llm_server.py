"""A strict inference server without a model: HTTP as SGLang, vLLM or llama.cpp speak it.

    python fake_llm_server.py --kind vllm --port 8080

It refuses what a real one would refuse: unknown fields, wrong types, tokens that are not in
its vocabulary, a context that is too long, another model, a wrong key, names that are taken.
The next token depends on all tokens before it and on the version of the weights, so that an
answer which is resumed must go on as if nothing had happened. The first token of a prompt
can ask for trouble (TROUBLE). /fake/state tells what has happened to requests.
"""

import argparse
import contextlib
import json
import select
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PROGRAM = str(Path(__file__).resolve())
VOCABULARY = 1000
EOS = 2
CONTEXT = 256
HANG, CUT, GARBAGE, ERROR, REFUSE, JSON, SHORT, MANY = range(900, 908)
TROUBLE_AFTER = 3  # tokens
OPTIONS = {"temperature", "top_p", "top_k", "min_p", "stop", "seed"}


def next_token(tokens: list[int], version: int) -> int:
    """10 to 799, or the end once in a while."""
    mixed = sum((i + 1) * t for i, t in enumerate(tokens)) + 7919 * version
    return EOS if mixed % 61 == 0 else 10 + mixed % 790


def logprob(token: int) -> float:
    return -token / 1024


def answer_of(prompt: list[int], new: int, version: int = 0) -> list[int]:
    """What is expected of it."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + new:
        tokens.append(next_token(tokens, version))
        if tokens[-1] == EOS:
            break
    return tokens[len(prompt) :]


def server_on(port: str) -> int:
    """The process of the server that was started with this port."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if PROGRAM.encode() in words and port.encode() in words:
            return int(folder.name)
    raise AssertionError(f"nobody serves on {port}")


class Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def check_fields(body: Any, types: dict[str, Any], needed: set[str]) -> None:
    if not isinstance(body, dict):
        raise Refused(400, "the body must be an object")
    if unknown := set(body) - set(types):
        raise Refused(400, f"unknown fields: {sorted(unknown)}")
    if missing := needed - set(body):
        raise Refused(400, f"missing fields: {sorted(missing)}")
    for name, value in body.items():
        wanted = types[name]
        is_bool = isinstance(value, bool)
        if not isinstance(value, wanted) or (is_bool and wanted is not bool):
            raise Refused(400, f"{name}: wrong type: {value!r}")


def check_prompt(prompt: list[Any], new: int) -> None:
    if not prompt:
        raise Refused(400, '"prompt" must not be empty')
    if not all(type(t) is int and 0 <= t < VOCABULARY for t in prompt):
        raise Refused(400, "Prompt contains invalid tokens")
    if len(prompt) > CONTEXT:
        raise Refused(400, f"request ({len(prompt)} tokens) exceeds the context")
    if new < 1:
        raise Refused(400, f"{new} new tokens")


NUMBER = (int, float)
SAMPLING = {
    "temperature": NUMBER, "top_p": NUMBER, "top_k": int, "min_p": NUMBER,
    "stop": list, "seed": int,
}  # fmt: skip


class Fake(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, kind: str, port: int = 0, key: str | None = None) -> None:
        self.kind, self.key = kind, key
        self.lock = threading.Condition()
        self.version, self.label = 0, "default"
        self.running: dict[str, bool] = {}  # by name; True: it was aborted
        self.ended: list[str] = []  # how requests have ended
        self.is_paused = False
        self.pauses: list[str] = []  # their modes
        self.posts: list[str] = []
        self.seeds: list[int] = []  # of requests that had one
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def wait_ended(self, how: str, count: int = 1) -> None:
        """Until so many requests have ended like that."""
        with self.lock:
            there = self.lock.wait_for(lambda: self.ended.count(how) >= count, 20)
            assert there, f"no {how} in {self.ended}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Fake

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve(
            {"/health": self._health, "/v1/models": self._models} | self._kinds()[0]
        )

    def do_POST(self) -> None:
        self._serve(self._kinds()[1])

    def _kinds(self) -> tuple[dict[str, Any], dict[str, Any]]:
        kind = self.server.kind
        if kind == "openai":
            return {}, {"/v1/completions": self._completions}
        if kind == "vllm":
            return {"/metrics": self._metrics}, {
                "/v1/completions": self._completions,
                "/tokenize": self._tokenize,
                "/detokenize": self._detokenize,
                "/pause": self._vllm_pause,
                "/resume": self._resume,
                "/collective_rpc": self._collective_rpc,
                "/reset_prefix_cache": self._nothing,
                "/update_weight_version": self._vllm_version,
            }
        if kind == "sglang":
            return {"/v1/loads": self._loads}, {
                "/generate": self._sglang_generate,
                "/tokenize": self._tokenize,
                "/detokenize": self._detokenize,
                "/abort_request": self._abort_request,
                "/pause_generation": self._pause_generation,
                "/continue_generation": self._resume,
                "/update_weights_from_disk": self._update_from_disk,
            }
        return {"/slots": self._slots}, {
            "/completion": self._llama_completion,
            "/tokenize": self._llama_tokenize,
            "/detokenize": self._detokenize,
        }

    def _serve(self, routes: dict[str, Any]) -> None:
        path = self.path.partition("?")[0]
        try:
            if self.command == "POST":
                self.server.posts.append(path)
                if self.headers["Content-Type"] != "application/json":
                    raise Refused(415, "Content-Type must be application/json")
                data = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    body = json.loads(data)
                except ValueError:
                    raise Refused(400, "JSON decode error") from None
                self._note_seed(body)
            want = self.server.key
            if want and self.headers["Authorization"] != f"Bearer {want}":
                raise Refused(401, "Invalid API Key")
            if path not in routes:
                raise Refused(404, "Not Found")
            routes[path](*([body] if self.command == "POST" else []))
        except Refused as why:
            error = {"message": str(why), "code": why.status}
            self._json({"error": error}, why.status)

    def _note_seed(self, body: Any) -> None:
        given = body.get("sampling_params", body)
        for name in ("seed", "sampling_seed"):
            if name in given:
                self.server.seeds.append(given[name])

    def _json(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _nothing(self, body: Any = None) -> None:
        self._json({})

    # -- looking ------------------------------------------------------------------------

    def _health(self) -> None:
        self._json({"status": "ok"})

    def _models(self) -> None:
        owner = {"llama.cpp": "llamacpp"}.get(self.server.kind, self.server.kind)
        self._json({"data": [{"id": "tiny", "owned_by": owner}]})

    def _metrics(self) -> None:
        count = len(self.server.running)
        text = f'vllm:num_requests_running{{model="tiny"}} {count}.0\n'
        text += 'vllm:num_requests_waiting{model="tiny"} 0.0\n'
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _loads(self) -> None:
        one = {"num_running_reqs": len(self.server.running), "num_waiting_reqs": 0}
        self._json({"loads": [one]})

    def _slots(self) -> None:
        count = len(self.server.running)
        self._json([{"id": i, "is_processing": i < count} for i in range(4)])

    def _tokenize(self, body: Any) -> None:
        check_fields(body, {"model": str, "prompt": str}, {"prompt"})
        self._json({"tokens": [10 + ord(c) % 128 for c in body["prompt"]]})

    def _llama_tokenize(self, body: Any) -> None:
        types = {"content": str, "add_special": bool, "parse_special": bool}
        check_fields(body, types, {"content"})
        self._json({"tokens": [10 + ord(c) % 128 for c in body["content"]]})

    def _detokenize(self, body: Any) -> None:
        check_fields(body, {"model": str, "tokens": list}, {"tokens"})
        check_prompt(body["tokens"], 1)
        names = {"sglang": "text", "vllm": "prompt", "llama.cpp": "content"}
        text = "".join(chr(t - 10) for t in body["tokens"])
        self._json({names[self.server.kind]: text})

    # -- control ------------------------------------------------------------------------

    def _pause(self, mode: str, modes: tuple[str, ...]) -> None:
        fake = self.server
        if mode not in modes:
            raise Refused(400, f"mode: {mode}")
        with fake.lock:
            fake.is_paused = True
            fake.pauses.append(mode)
            if mode == "abort":
                fake.running = dict.fromkeys(fake.running, True)
            fake.lock.notify_all()
        self._json({"status": "paused"})

    def _vllm_pause(self, body: Any) -> None:
        mode = self.path.partition("?mode=")[2] or "abort"
        self._pause(mode, ("abort", "wait", "keep"))

    def _pause_generation(self, body: Any) -> None:
        check_fields(body, {"mode": str}, set())
        self._pause(body.get("mode", "abort"), ("abort", "retract", "in_place"))

    def _resume(self, body: Any) -> None:
        with self.server.lock:
            self.server.is_paused = False
            self.server.lock.notify_all()
        self._json({"status": "resumed"})

    def _abort_request(self, body: Any) -> None:
        check_fields(body, {"rid": str, "abort_all": bool}, set())
        fake, rid = self.server, body.get("rid", "")
        with fake.lock:
            for name in fake.running:
                if body.get("abort_all") or name.startswith(rid):
                    fake.running[name] = True
            fake.lock.notify_all()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _load_weights(self, path: str) -> None:
        try:
            number = int(Path(path, "version").read_text())
        except (OSError, ValueError):
            raise Refused(400, f"no weights at {path}") from None
        with self.server.lock:
            self.server.version = number

    def _update_from_disk(self, body: Any) -> None:
        types = {"model_path": str, "weight_version": str, "flush_cache": bool}
        check_fields(body, types, {"model_path"})
        self._load_weights(body["model_path"])
        self.server.label = body["weight_version"]
        self._json({"success": True, "message": "Succeeded to update model weights."})

    def _collective_rpc(self, body: Any) -> None:
        check_fields(body, {"method": str, "kwargs": dict}, {"method"})
        if body["method"] != "reload_weights":
            raise Refused(500, f"no method {body['method']}")
        self._load_weights(body["kwargs"]["weights_path"])
        self._json({"results": [None]})

    def _vllm_version(self, body: Any) -> None:
        check_fields(body, {"new_version": str}, {"new_version"})
        self.server.label = body["new_version"]
        self._json({})

    # -- generation ---------------------------------------------------------------------

    def _completions(self, body: Any) -> None:
        types = SAMPLING | {
            "model": str, "prompt": list, "max_tokens": int, "stream": bool,
            "logprobs": int, "return_token_ids": bool,
        }  # fmt: skip
        if self.server.kind == "openai":
            types = {k: v for k, v in types.items() if k not in ("top_k", "min_p")}
        check_fields(body, types, {"model", "prompt", "max_tokens", "stream"})
        if body["model"] != "tiny":
            raise Refused(404, f"The model `{body['model']}` does not exist.")
        if not 0 <= body["logprobs"] <= 5:
            raise Refused(400, "logprobs: 0 to 5")
        check_prompt(body["prompt"], body["max_tokens"])
        fake, prompt = self.server, body["prompt"]

        def event(tokens: list[int], finish: str | None) -> Any:
            choice: dict[str, Any] = {"index": 0, "text": "", "finish_reason": finish}
            choice["logprobs"] = None
            if tokens:
                values = [logprob(t) for t in tokens]
                names = [f"token_id:{t}" for t in tokens]
                choice["text"] = " ".join(names)
                choice["logprobs"] = {"tokens": names, "token_logprobs": values}
                if fake.kind == "vllm":
                    choice["token_ids"] = tokens
            return {"object": "text_completion", "choices": [choice]}

        self._stream(str(id(self)), prompt, body["max_tokens"], event, done="[DONE]")

    def _sglang_generate(self, body: Any) -> None:
        types = {
            "input_ids": list, "rid": str, "sampling_params": dict, "stream": bool,
            "return_logprob": bool,
        }  # fmt: skip
        check_fields(body, types, set(types))
        params = body["sampling_params"]
        names = {k: v for k, v in SAMPLING.items() if k != "seed"}
        names |= {"max_new_tokens": int, "sampling_seed": int}
        check_fields(params, names, {"max_new_tokens"})
        check_prompt(body["input_ids"], params["max_new_tokens"])
        pairs: list[Any] = []

        def event(tokens: list[int], finish: str | None) -> Any:
            pairs.extend([logprob(t), t, None] for t in tokens)
            meta = {
                "id": body["rid"],
                "completion_tokens": len(pairs),
                "output_token_logprobs": list(pairs),
                "finish_reason": finish and {"type": finish},
            }
            return {"text": "", "output_ids": [p[1] for p in pairs], "meta_info": meta}

        new = params["max_new_tokens"]
        self._stream(body["rid"], body["input_ids"], new, event, done="[DONE]")

    def _llama_completion(self, body: Any) -> None:
        types = SAMPLING | {
            "prompt": list, "n_predict": int, "stream": bool, "return_tokens": bool,
            "n_probs": int, "cache_prompt": bool,
        }  # fmt: skip
        check_fields(body, types, {"prompt"})
        prompt, new = body["prompt"], body["n_predict"]
        check_prompt(prompt, new)
        if body["stream"]:
            raise Refused(501, "this one does not stream")
        tokens: list[int] = []
        with self._named(str(id(self))) as name:
            for token in answer_of(prompt, new, self.server.version):
                if len(tokens) == TROUBLE_AFTER:
                    self._trouble(prompt[0], name)
                tokens.append(token)
            stop = "eos" if tokens[-1] == EOS else "limit"
            # tokens that end within a character have no probability
            odd = [t for t in tokens if t % 97]
            values = [{"id": t, "logprob": logprob(t)} for t in odd]
            answer = {"content": "", "tokens": tokens, "stop": True, "stop_type": stop}
            self._json(answer | {"completion_probabilities": values})

    @contextlib.contextmanager
    def _named(self, name: str) -> Any:
        fake, how = self.server, "cut"
        with fake.lock:
            if name in fake.running:
                raise Refused(400, f"Duplicate request ID: {name}")
            fake.running[name] = False
        try:
            yield name
            how = "done"
        except Refused:
            how = "refused"
            raise
        finally:
            with fake.lock:
                how = "aborted" if fake.running.pop(name) else how
                fake.ended.append(how)
                fake.lock.notify_all()

    def _stream(self, name: str, prompt: Any, new: int, event: Any, done: str) -> None:
        if prompt[0] == REFUSE:
            raise Refused(503, "no capacity")
        with self._named(name):
            if prompt[0] == JSON:
                self._json({"choices": []})
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            tokens: list[int] = []
            while True:
                if len(tokens) == TROUBLE_AFTER:
                    self._trouble(prompt[0], name)
                self._while_paused(name)
                if self.server.running[name]:
                    self._event(event([], "abort"))
                    break
                step = 4 if prompt[0] == MANY else 1
                fresh: list[int] = []
                while len(fresh) < step and len(tokens) < new:
                    all_so_far = [*prompt, *tokens]
                    fresh.append(next_token(all_so_far, self.server.version))
                    tokens.append(fresh[-1])
                    if fresh[-1] == EOS:
                        break
                is_end = tokens[-1] == EOS
                finish = "stop" if is_end else "length" if len(tokens) == new else None
                self._event(event(fresh, finish))
                if finish:
                    break
            self._data(done)
            self._chunk(b"")

    def _event(self, value: Any) -> None:
        self._data(json.dumps(value))

    def _data(self, text: str) -> None:
        self._chunk(f"data: {text}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _trouble(self, kind: int, name: str) -> None:
        if kind == HANG:
            while not self.server.running[name]:
                self._look(0.02)
        elif kind == CUT:
            raise ConnectionAbortedError
        elif kind == GARBAGE:
            self._data('{"choices": [')
        elif kind == ERROR:
            self._event({"error": {"message": "out of memory", "code": 500}})
        elif kind == SHORT:
            self._chunk(b"")
            raise ConnectionAbortedError

    def _while_paused(self, name: str) -> None:
        while self.server.is_paused and not self.server.running[name]:
            self._look(0.02)

    def _look(self, seconds: float) -> None:
        """Wait; the client's end of the connection aborts, as in all real ones."""
        readable, _, _ = select.select([self.connection], [], [], seconds)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise ConnectionAbortedError


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model")
    parser.add_argument("--fail", choices=("exit", "never"))
    options = parser.parse_args()
    print("loading the model", flush=True)
    if options.fail == "exit":
        sys.exit("CUDA out of memory")
    if options.fail == "never":
        time.sleep(1000)
    fake = Fake(options.kind, options.port)
    if options.model:
        fake.version = int(Path(options.model, "version").read_text())
    print("ready", flush=True)
    fake.serve_forever()


if __name__ == "__main__":
    main()
