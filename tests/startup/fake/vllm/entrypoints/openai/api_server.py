"""The server: health, and streamed completions."""

from __future__ import annotations

import http.server
import itertools
import json
import sys

import vllm


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as vLLM's does; a first event without a token comes before those that have one."""

    engine: vllm.LLM

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["model"] == "model"
        self.send_response(200)
        self.end_headers()
        ids = self.engine.answer(asked["prompt"], asked["max_tokens"])
        for found in ([], *([each] for each in ids)):
            event = {"choices": [{"text": "", "token_ids": found}]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Keep still."""


def main(argv: list[str]) -> None:
    """Serve on the port that the options name."""
    options = {name.removeprefix("--").replace("-", "_"): value for name, value in itertools.pairwise(argv)}
    vllm.log("vLLM server version 0.32.0, serving model m")
    server = http.server.HTTPServer((options["host"], int(options["port"])), Handler, bind_and_activate=False)
    server.allow_reuse_address = False
    server.server_bind()
    Handler.engine = vllm.LLM(load_format=options["load_format"])
    server.server_activate()
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
