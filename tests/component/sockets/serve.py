# SPDX-License-Identifier: Apache-2.0
"""A server that tells nobody of its requests: serve.py KIND. Says "port N" first; tls and echo "port N PLAIN", where the same process answers plain HTTP.

threads: http.server with keep-alive    asyncio: HTTP/1.1, chunked answers    forks: two children that accept
grpc: grpcio    tls: as threads, with a certificate    echo: no HTTP
GET /SECONDS takes so long; /spawn starts a process in between.
"""
import asyncio
import ctypes
import http.server
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time


http.server.ThreadingHTTPServer.request_queue_size = 64


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/spawn":
            subprocess.run(["true"], check=True, close_fds=True)
        else:
            time.sleep(float(self.path[1:]))
        if self.path == "/0.777":
            self.close_connection = True  # without an answer
            return
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *args):
        pass


def say(*ports):
    print("port", *ports, flush=True)


def plain():
    """Returns the port of a server of plain HTTP on a thread."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def threads():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    say(server.server_port)
    server.serve_forever()


def tls():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    say(server.server_port, plain())
    server.serve_forever()


def forks():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    children = []
    for _ in range(2):
        if not (child := os.fork()):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with its parent
            server.serve_forever()
        children.append(child)
    say(server.server_port)
    for child in children:
        os.waitpid(child, 0)


async def answer(reader, writer):
    while line := await reader.readline():
        while (await reader.readline()).strip():
            pass
        await asyncio.sleep(float(line.split()[1][1:]))
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            writer.write(b"5\r\nhello\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    writer.close()


async def serve_asyncio():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    say(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def grpc():
    import grpc
    from concurrent import futures

    def method(request, context):
        time.sleep(float(request))
        return b"done"
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
        "test.Server", {"Take": grpc.unary_unary_rpc_method_handler(method)}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    say(port)
    server.wait_for_termination()


def echo():
    with socket.create_server(("127.0.0.1", 0)) as server:
        say(server.getsockname()[1], plain())
        while True:
            peer = server.accept()[0]
            while data := peer.recv(4096):
                peer.sendall(data)


if sys.argv[1] == "asyncio":
    asyncio.run(serve_asyncio())
else:
    {"threads": threads, "forks": forks, "grpc": grpc, "tls": tls, "echo": echo}[sys.argv[1]]()
