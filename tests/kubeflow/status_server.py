"""A TLS server on 127.0.0.1 in place of Kubeflow Trainer's, and its certificates."""

import http.server
import json
import os
import ssl
import subprocess
import threading


def openssl(*arguments, folder):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_authority(folder, name):
    """Makes NAME.crt and NAME.key in a folder."""
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-noenc", "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key",
            "-out", f"{name}.crt", folder=folder)


def make_certificate(folder, authority):
    """Makes server.crt, which the authority has signed for 127.0.0.1, and server.key."""
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc",
            "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr",
            folder=folder)
    with open(os.path.join(folder, "names"), "w", encoding="utf-8") as file:
        file.write("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", f"{authority}.crt",
            "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", "2",
            "-extfile", "names", "-out", "server.crt", folder=folder)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), json.loads(body)))
        if self.server.hangs:
            self.server.ended.wait()
            return
        self.send_response(self.server.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class StatusServer(http.server.ThreadingHTTPServer):
    """Answers requests with `code`, or leaves them without an answer (`hangs`)."""

    def __init__(self, folder, code=200, hangs=False):
        super().__init__(("127.0.0.1", 0), Handler)
        self.code = code
        self.hangs = hangs
        self.ended = threading.Event()
        self.requests = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(folder, "server.crt"),
                                os.path.join(folder, "server.key"))
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.thread = threading.Thread(target=self.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, *_):
        """Prints nothing if a client closes the connection."""

    def url(self):
        return f"https://127.0.0.1:{self.server_address[1]}/trainjobs/a/status"
