"""One TCP flow for lab_test.py. Each end prints its view, so that a reset cannot go unnoticed.

flow.py receive PORT        prints JSON {"time", "bytes"} ten times a second, at the end
                                {"total"} or {"error"}
flow.py send ADDRESS PORT   sends until its standard input ends, then prints {"total"} or
                                {"error"}
"""

import json
import selectors
import socket
import sys
import time


def say(**what):
    print(json.dumps(what), flush=True)


def receive(port):
    listener = socket.create_server(("", port))
    say(listening=port)
    flow, _ = listener.accept()
    total, nextReport = 0, time.monotonic()
    with selectors.DefaultSelector() as waiting:
        waiting.register(flow, selectors.EVENT_READ)
        while True:
            if waiting.select(timeout=max(0, nextReport - time.monotonic())):
                piece = flow.recv(1 << 20)
                if not piece:
                    return total
                total += len(piece)
            if time.monotonic() >= nextReport:
                say(time=time.monotonic(), bytes=total)
                nextReport += 0.1


def send(address, port):
    flow = socket.create_connection((address, port))
    flow.setblocking(False)
    piece, total = bytes(1 << 18), 0
    with selectors.DefaultSelector() as waiting:
        waiting.register(flow, selectors.EVENT_WRITE)
        waiting.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is sys.stdin:
                    return total
                total += flow.send(piece)


if __name__ == "__main__":
    try:
        say(
            total=receive(int(sys.argv[2]))
            if sys.argv[1] == "receive"
            else send(sys.argv[2], int(sys.argv[3]))
        )
    except OSError as error:
        say(error=str(error))
        sys.exit(1)
