"""A member of a sluice job that is written by hand: it sends messages that no rank of ours would
send. The programs beside this file share it.

The module uses loopback only. It does not find out a job key: the program that uses it is given the
key, so that it is an *authenticated* peer.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLUICE = os.environ.get("SLUICE", str(ROOT / "build/release/bin/sluice"))
MODULE = os.environ.get("SLUICE_PYTHON", str(ROOT / "build/release/python"))
SKIPPED = 77  # for ctest

STARTED = time.monotonic()
RENDEZVOUS, FABRIC, TLS_PSK = 1, 2, 3  # secret::Purpose
CONTROL, URGENT, BULK = 0, 1, 2  # wire::Lane
GOODBYE, HEARTBEAT, ENCODED = 1, 2, 4  # wire::Flags
PUSH, UPDATE, PUBLISH = 2, 5, 6  # plan::Stage
BYTES, F32 = 0, 1  # plan::DType


def guard() -> None:
    if not os.path.exists(SLUICE):
        print(f"not run: {SLUICE} is not built; build it, or set SLUICE and SLUICE_PYTHON")
        sys.exit(SKIPPED)


def verdict(is_gone: bool, what: str) -> None:
    """Ends the program: 0 if the fault is proved to be gone, 1 if it shows."""
    print("gone:" if is_gone else "IT SHOWS:", what)
    sys.exit(0 if is_gone else 1)


# ---- keys, handshake, header ----


def job_key(key_hex: str, nonce: bytes) -> str:
    """Returns the key of one job, for everything but the rendezvous: JobKey::forJob."""
    return hashlib.blake2b(
        b"sluice job" + nonce, digest_size=32, key=bytes.fromhex(key_hex)
    ).hexdigest()


def derive(key_hex: str, purpose: int) -> bytes:
    return hashlib.blake2b(
        b"",
        digest_size=32,
        key=bytes.fromhex(key_hex),
        salt=purpose.to_bytes(8, "little") + bytes(8),
        person=b"sluice 1" + bytes(8),
    ).digest()


def keyed(key: bytes, label: bytes, transcript: bytes) -> bytes:
    return hashlib.blake2b(
        bytes([len(label)]) + label + transcript, digest_size=32, key=key
    ).digest()


def receive(sock: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = sock.recv(size - len(got))
        if not part:
            raise ConnectionError(f"hung up after {len(got)} of {size} bytes")
        got += part
    return got


def hello_of(purpose: int, claim: bytes) -> bytes:
    return b"sluicehs" + struct.pack("<HH4x", 2, purpose) + claim + os.urandom(32)


def hello_proof(key: bytes, hello: bytes) -> bytes:
    return keyed(key, b"hello proof", hello + bytes(32))


def plain_handshake(
    sock: socket.socket, key_hex: str, purpose: int, claim: bytes
) -> tuple[bytes, bytes]:
    """Returns (key for sending, key for receiving)."""
    key = derive(key_hex, purpose)
    hello = hello_of(purpose, claim)
    sock.sendall(hello + hello_proof(key, hello))
    answer = receive(sock, 64)
    transcript = hello + answer[:32]
    if answer[32:] != keyed(key, b"server proof", transcript):
        raise PermissionError("the other end does not hold the key")
    sock.sendall(keyed(key, b"client proof", transcript))
    return keyed(key, b"to server", transcript), keyed(key, b"to client", transcript)


def stream_claim(source: int, destination: int, lane: int, epoch: int = 0) -> bytes:
    return struct.pack("<IIII", epoch, source, destination, lane)


def header(
    key: bytes,
    *,
    source: int,
    destination: int,
    lane: int,
    sequence: int,
    length: int,
    flags: int = 0,
    step: int = 0,
    tensor: int = 0,
    slice: int = 0,
    stage: int = PUSH,
    dtype: int = BYTES,
    epoch: int = 0,
) -> bytes:
    body = struct.pack(
        "<IHHIIQQIIBBBBIQ",
        0x43554C53,
        2,
        flags,
        epoch,
        source,
        sequence,
        step,
        tensor,
        slice,
        stage,
        dtype,
        lane,
        0,
        destination,
        length,
    )
    assert len(body) == 56
    return body + hashlib.blake2b(body, digest_size=16, key=key).digest()


# ---- TLS 1.3 with an external pre-shared key, by ctypes (Python's ssl cannot) ----


class Tls:
    def __init__(self, sock: socket.socket, key_hex: str, claim: bytes) -> None:
        lib = self.lib = ctypes.CDLL("libssl.so.3")
        for name in ("TLS_method", "SSL_CTX_new", "SSL_new", "SSL_SESSION_new", "SSL_CIPHER_find"):
            getattr(lib, name).restype = ctypes.c_void_p
        lib.SSL_CTX_new.argtypes = [ctypes.c_void_p]
        lib.SSL_new.argtypes = [ctypes.c_void_p]
        lib.SSL_CTX_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
        lib.SSL_CTX_set_ciphersuites.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        lib.SSL_set_fd.argtypes = [ctypes.c_void_p, ctypes.c_int]
        lib.SSL_connect.argtypes = [ctypes.c_void_p]
        lib.SSL_write.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
        lib.SSL_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        lib.SSL_CIPHER_find.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        lib.SSL_SESSION_set1_master_key.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
        ]
        lib.SSL_SESSION_set_cipher.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        lib.SSL_SESSION_set_protocol_version.argtypes = [ctypes.c_void_p, ctypes.c_int]
        lib.SSL_export_keying_material.argtypes = [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
        ]
        self.identity = ctypes.create_string_buffer(b"sluice fabric 1 " + claim, 32)
        psk = derive(key_hex, TLS_PSK)
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.POINTER(ctypes.c_size_t),
            ctypes.POINTER(ctypes.c_void_p),
        )

        def use_session(
            ssl: int, _digest: int, identity: object, size: object, session: object
        ) -> int:
            made = lib.SSL_SESSION_new()
            lib.SSL_SESSION_set1_master_key(made, psk, len(psk))
            lib.SSL_SESSION_set_cipher(made, lib.SSL_CIPHER_find(ssl, b"\x13\x01"))
            lib.SSL_SESSION_set_protocol_version(made, 0x0304)
            identity[0] = ctypes.addressof(self.identity)
            size[0] = 32
            session[0] = made
            return 1

        self.callback = kind(use_session)
        lib.SSL_CTX_set_psk_use_session_callback.argtypes = [ctypes.c_void_p, kind]
        context = lib.SSL_CTX_new(lib.TLS_method())
        lib.SSL_CTX_ctrl(context, 123, 0x0304, None)  # least version
        lib.SSL_CTX_set_ciphersuites(context, b"TLS_AES_128_GCM_SHA256")
        lib.SSL_CTX_set_psk_use_session_callback(context, self.callback)
        self.ssl = lib.SSL_new(context)
        self.sock = sock
        sock.setblocking(True)
        lib.SSL_set_fd(self.ssl, sock.fileno())
        if lib.SSL_connect(self.ssl) != 1:
            raise PermissionError("TLS was refused")
        keys = ctypes.create_string_buffer(64)
        label = b"sluice fabric header keys"
        assert (
            lib.SSL_export_keying_material(self.ssl, keys, 64, label, len(label), None, 0, 0) == 1
        )
        self.send_key, self.receive_key = keys.raw[:32], keys.raw[32:]

    def write(self, data: bytes) -> bool:
        for begin in range(0, len(data), 1 << 20):
            part = data[begin : begin + (1 << 20)]
            if self.lib.SSL_write(self.ssl, part, len(part)) != len(part):
                return False
        return True

    def read(self, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        got = self.lib.SSL_read(self.ssl, buffer, size)
        return buffer.raw[: max(got, 0)]


# ---- rank 0's table, as a member sees it ----


class Rendezvous:
    """A member that has joined. It learns the settings that must agree from rank 0's refusals.

    `job_key` is the key of this very job.
    """

    def __init__(self, port: int, key_hex: str, rank: int) -> None:
        self.sodium = ctypes.CDLL("libsodium.so.23")
        self.sodium.sodium_init()
        self.listeners: list[socket.socket] = []
        settings: dict[str, str] = {}
        for _ in range(6):
            refusal = self._join(port, key_hex, rank, settings)
            if refusal is None:
                self.job_key = job_key(key_hex, self.nonce)
                return
            for what, value in re.findall(
                r"(?:: |; )([a-z -]+?) is .*? on rank \d+ but (.*?) on rank 0(?=; |$)", refusal
            ):
                settings[what] = value
        raise PermissionError(refusal)

    def _join(self, port: int, key_hex: str, rank: int, settings: dict[str, str]) -> str | None:
        self.sock = connect(port, patience=20)
        self.send_key, self.receive_key = plain_handshake(
            self.sock, key_hex, RENDEZVOUS, struct.pack("<I12x", rank)
        )
        self.sent = self.received = self.ids = 0
        text = "".join(f"{name}={value}\n" for name, value in sorted(settings.items())).encode()
        age = int(1000 * (time.monotonic() - STARTED))
        newcomer = hashlib.blake2b(text, digest_size=32).digest() + os.urandom(16) + bytes(16)
        self.say(1, value=newcomer + struct.pack("<QQI", age, age, os.getpid()))
        while True:
            kind, _, _, value = self.hear()
            if kind == 32:
                self.nonce = value
                return None
            if kind == 33:
                self.say(2, value=text)
            elif kind == 34:
                self.sock.close()
                return value.decode()

    def say(
        self, kind: int, key: bytes = b"", value: bytes = b"", timeout_ms: int = 0, request: int = 0
    ) -> None:
        plain = (
            struct.pack("<BBHIII", kind, 0, len(key), request, timeout_ms, len(value)) + key + value
        )
        for begin in range(0, len(plain), 65536):
            part = plain[begin : begin + 65536]
            word = struct.pack(
                "<I", len(part) + 16 | (1 << 31 if begin + 65536 >= len(plain) else 0)
            )
            out = ctypes.create_string_buffer(len(part) + 16)
            nonce = self.sent.to_bytes(8, "little") + bytes(16)
            self.sent += 1
            self.sodium.crypto_aead_xchacha20poly1305_ietf_encrypt(
                out,
                None,
                part,
                ctypes.c_ulonglong(len(part)),
                word,
                ctypes.c_ulonglong(4),
                None,
                nonce,
                self.send_key,
            )
            self.sock.sendall(word + out.raw)

    def hear(self) -> tuple[int, int, int, bytes]:
        message = b""
        while True:
            word = receive(self.sock, 4)
            (number,) = struct.unpack("<I", word)
            sealed = receive(self.sock, number & 0x7FFFFFFF)
            out = ctypes.create_string_buffer(len(sealed) - 16)
            nonce = self.received.to_bytes(8, "little") + bytes(16)
            self.received += 1
            assert (
                self.sodium.crypto_aead_xchacha20poly1305_ietf_decrypt(
                    out,
                    None,
                    None,
                    sealed,
                    ctypes.c_ulonglong(len(sealed)),
                    word,
                    ctypes.c_ulonglong(4),
                    nonce,
                    self.receive_key,
                )
                == 0
            )
            message += out.raw
            if number >> 31:
                break
        kind, code, key_bytes, request, _, _ = struct.unpack("<BBHIII", message[:16])
        return kind, code, request, message[16 + key_bytes :]

    def gather(self, key: str, value: bytes, seconds: int = 30) -> list[bytes]:
        self.ids += 1
        self.say(6, key.encode(), value, 1000 * seconds, self.ids)
        _, code, _, answer = self.hear()
        if code != 0:
            raise RuntimeError(answer.decode())
        (count,), rest, values = struct.unpack("<I", answer[:4]), answer[4:], []
        for _ in range(count):
            (size,) = struct.unpack("<I", rest[:4])
            values.append(rest[4 : 4 + size])
            rest = rest[4 + size :]
        return values


# ---- processes ----


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def connect(port: int, patience: float = 10) -> socket.socket:
    end = time.monotonic() + patience
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", port), timeout=10)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def bring_address(member: Rendezvous, key: str) -> list[int]:
    """Brings an address at which nobody answers, as the others bring theirs, and returns all ranks'
    ports."""
    listener = socket.create_server(("127.0.0.1", 0))
    member.listeners.append(listener)
    notes = member.gather(key, f"127.0.0.1:{listener.getsockname()[1]}".encode())
    return [int(note.decode().rpartition(":")[2]) for note in notes]


def start(member: Rendezvous) -> None:
    """Starts the job when all ranks are here; each brings the address of its pulse
    (fabric/watch/pulse.h)."""
    bring_address(member, "start")


def listening_ports(pid: int) -> list[int]:
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as rows:
            for row in list(rows)[1:]:
                parts = row.split()
                if parts[3] == "0A" and parts[9] in inodes:
                    ports.append(int(parts[1].split(":")[1], 16))
    return ports


class Rank:
    """A real rank, and its output."""

    def __init__(
        self, command: list[str], rank: int, world: int, port: int, **variables: str
    ) -> None:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")
        }
        environment = (
            clean
            | {
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            }
            | variables
        )
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, text: str, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if any(text in line for line in self.lines):
                return True
            if self.process.poll() is not None and not self.reader.is_alive():
                return any(text in line for line in self.lines)
            time.sleep(0.05)
        return False

    def end(self) -> int:
        """Ends only the process that this script has started."""
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        self.reader.join(timeout=5)
        return code


def how_it_ended(process: subprocess.Popen, seconds: float) -> str:
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return "still runs"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def busy_threads(pid: int, seconds: float = 1.0) -> dict[str, float]:
    """Returns the CPU use of each thread, in cores."""

    def read() -> dict[str, tuple[str, int]]:
        found = {}
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/stat") as stat:
                text = stat.read()
            name, rest = (
                text[text.index("(") + 1 : text.rindex(")")],
                text[text.rindex(")") + 2 :].split(),
            )
            found[task] = (name, int(rest[11]) + int(rest[12]))
        return found

    before = read()
    time.sleep(seconds)
    tick = os.sysconf("SC_CLK_TCK")
    return {
        f"{name}/{task}": (ticks - before[task][1]) / tick / seconds
        for task, (name, ticks) in read().items()
        if task in before
    }
