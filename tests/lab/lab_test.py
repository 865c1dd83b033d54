"""Tests a lab from outside: measures the promises of docs/lab.md, as root or as an ordinary user.
Skips (77) if the user may not make namespaces. user_test.py runs it for root as a user.

lab_test.py PATH_OF_SLUICE [Class ...]
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from root import as_ordinary_user, skip_without_lab

PROGRAM = os.path.abspath(sys.argv[1])
FLOW = Path(__file__).with_name("flow.py")
NAME = f"test{os.getpid()}"  # so that no lab of a user is in the way
ONLY_IN_PART = 4  # the exit code for a lab whose `up` was killed


def run(*command, **options):
    return subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, timeout=60, **options
    )


def lab(command, *args, name=NAME, **options):
    return run(PROGRAM, "lab", command, "--name", name, *args, **options)


def mustLab(command, *args, **options):
    ran = lab(command, *args, **options)
    if ran.returncode != 0:
        raise AssertionError(f"lab {command} {args}: exit code {ran.returncode}: {ran.stderr}")
    return ran


def onHost(host, *command, name=NAME):
    """Returns the words of a command that runs on a host."""
    return [PROGRAM, "lab", "exec", "--name", name, "--host", str(host), "--", *map(str, command)]


def bits(rate):
    return float(rate[:-4]) * {"m": 1e6, "g": 1e9}[rate[-4]]


def waitFor(holds, seconds, what):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


class LabCase(unittest.TestCase):
    """A case that leaves no lab behind."""

    def up(self, *args, name=NAME):
        self.addCleanup(lab, "down", name=name)
        return mustLab("up", *args, name=name)

    def start(self, command, **options):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def iperf(self, sender, receiver, *args, port=5201):
        """Returns the measurements of iperf3 from its JSON."""
        server = self.start(onHost(receiver, "iperf3", "-s", "-1", "--forceflush", "-p", port))
        while "listening" not in server.stdout.readline():
            self.assertIsNone(server.poll())
        client = run(
            *onHost(sender, "iperf3", "-c", f"10.77.0.{receiver + 1}", "-p", port, "-J", *args)
        )
        self.assertEqual(client.returncode, 0, client.stdout)
        return json.loads(client.stdout)["end"]


class Speed(LabCase):
    """Item 2: the time that up and down take."""

    def took(self, limit, command, *args):
        start = time.monotonic()
        mustLab(command, *args)
        seconds = time.monotonic() - start
        print(f"  lab {command} {' '.join(args)}: {seconds:.2f} s")
        self.assertLess(seconds, limit)

    def testFourHostsInUnder3Seconds(self):
        self.addCleanup(lab, "down")
        self.took(3, "up", "--hosts", "4")
        self.took(10, "down")

    def testThirtyTwoHostsInUnder15Seconds(self):
        self.addCleanup(lab, "down")
        self.took(15, "up", "--hosts", "32")
        self.took(10, "down")


class Rates(LabCase):
    """Item 3: links have the rate they are given."""

    def share(self, rate, measure, least):
        """Returns the best share of `rate` in up to ten measurements. A machine that is held up for
        a moment loses tokens of the shaper, and never gains any. On a machine that is too noisy the
        test is skipped visibly; a wrong rate is a failure."""
        shares = []
        while len(shares) < 3 or (max(shares) < least and len(shares) < 10):
            shares.append(measure() / bits(rate))
        print(f"  {rate}: {', '.join(f'{s:.3f}' for s in shares)} of the rate")
        self.assertGreaterEqual(max(shares), 0.6)
        if max(shares) < least:
            self.skipTest(
                f"this machine gives a flow at {rate} at most {max(shares):.3f} of it; {least} is "
                "expected"
            )
        return shares

    def testOneFlowGets93To100PercentOfTheRate(self):
        self.up("--hosts", "2")
        for rate in ("100mbit", "1gbit", "2gbit"):
            mustLab("set", "--host", "0-1", "--rate", rate)
            with self.subTest(rate=rate):
                shares = self.share(
                    rate,
                    lambda: self.iperf(0, 1, "-t", "2", "-O", "1")["sum_received"][
                        "bits_per_second"
                    ],
                    0.93,
                )
                self.assertLessEqual(max(shares), 1.00)

    def testFourIntoOneStayUnderTheReceiversRate(self):
        self.up("--hosts", "5", "--rate", "1gbit")

        def measureAll():
            received = {}

            def measure(sender):
                ended = self.iperf(sender, 0, "-t", "3", "-O", "1", port=5200 + sender)
                received[sender] = ended["sum_received"]["bits_per_second"]

            senders = [threading.Thread(target=measure, args=(s,)) for s in (1, 2, 3, 4)]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
            self.assertEqual(len(received), 4)
            return sum(received.values())

        self.assertLessEqual(max(self.share("1gbit", measureAll, 0.90)), 1.02)


class Flow:
    """A TCP flow from host 0 to host 1, watched at both ends."""

    def __init__(self, case, port=6000):
        self.samples = []  # (time, bytes so far)
        self.receiver = case.start(onHost(1, sys.executable, FLOW, "receive", port))
        case.assertIn("listening", self.receiver.stdout.readline())
        self.sender = case.start(
            onHost(0, sys.executable, FLOW, "send", "10.77.0.2", port), stdin=subprocess.PIPE
        )
        case.addCleanup(self.sender.stdin.close)
        self.lastWord = None
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        waitFor(lambda: self.samples, 20, "the flow has begun")  # a busy machine starts it late

    def read(self):
        for line in self.receiver.stdout:
            said = json.loads(line)
            if "time" in said:
                self.samples.append((said["time"], said["bytes"]))
            else:
                self.lastWord = said

    def bitsPerSecond(self, start, seconds):
        """Returns the mean rate from `start`; waits until that time is over."""
        waitFor(
            lambda: self.samples and self.samples[-1][0] >= start + seconds,
            seconds + 5,
            "samples of the flow",
        )
        inside = [s for s in self.samples if start <= s[0] <= start + seconds]
        return 8 * (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])

    def finish(self):
        """Ends the flow in good order; returns the last lines of sender and receiver."""
        self.sender.stdin.close()
        sender = json.loads(self.sender.stdout.readline())
        self.reader.join(timeout=20)
        return sender, self.lastWord


def resets(host):
    """Returns the number of connections that the host's TCP has reset or seen reset."""
    names, values = [
        line.split()
        for line in run(*onHost(host, "cat", "/proc/net/snmp")).stdout.splitlines()
        if line.startswith("Tcp:")
    ]
    counters = dict(zip(names, values))
    return int(counters["OutRsts"]) + int(counters["EstabResets"])


class Faults(LabCase):
    """Item 4: changes on running traffic."""

    def testSetChangesARunningFlowWithinOneSecond(self):
        self.up("--hosts", "2", "--rate", "1gbit")
        flow = Flow(self)
        for rate in ("100mbit", "1gbit"):
            mustLab("set", "--host", "1", "--rate", rate)
            share = flow.bitsPerSecond(time.monotonic() + 1, 1) / bits(rate)
            print(f"  in the second after the first at {rate}: {share:.3f} of the rate")
            self.assertGreater(share, 0.85)
            self.assertLess(share, 1.02)

    def testCutIsSilentAndHealResumes(self):
        self.up("--hosts", "3", "--rate", "1gbit")
        for cut in (("--host", "1"), ("--between", "0,1")):
            with self.subTest(cut=cut):
                flow = Flow(self)
                self.assertGreater(flow.bitsPerSecond(time.monotonic(), 0.5), 0.5e9)
                mustLab("cut", *cut)
                self.assertEqual(flow.bitsPerSecond(time.monotonic() + 0.3, 1.5), 0)
                self.assertIsNone(flow.sender.poll())
                self.assertIsNone(flow.receiver.poll())
                cutTotal = flow.samples[-1][1]
                mustLab("heal")
                healed = time.monotonic()
                waitFor(lambda: flow.samples[-1][1] > cutTotal + 10e6, 10, "the flow goes on")
                print(f"  {' '.join(cut)}: goes on {time.monotonic() - healed:.2f} s after heal")
                sender, receiver = flow.finish()
                self.assertEqual(sender, receiver, "all bytes arrived and nobody saw an error")
                self.assertIn("total", sender)
                self.assertEqual((resets(0), resets(1)), (0, 0))

    def testACutBetweenTwoLeavesTheThirdAlone(self):
        self.up("--hosts", "3")
        mustLab("cut", "--between", "0,1")
        self.assertGreater(self.iperf(0, 2, "-t", "1")["sum_received"]["bits_per_second"], 0.8e9)
        silent = run(*onHost(0, "iperf3", "-c", "10.77.0.2", "--connect-timeout", "300"))
        self.assertIn("timed out", silent.stderr, "silence, not a refusal")

    def testDropTwoPercentLosesOneToThreePercentEachWay(self):
        self.up("--hosts", "2")
        mustLab("drop", "--host", "1", "--percent", "2")
        for direction in ([], ["-R"]):
            # The packets are small: the receiver's buffer then lasts 50 ms, so that a busy machine
            # adds no losses of its own. iperf3's own greeting may be lost: then it has measured
            # nothing, and is asked again.
            asked = (
                self.iperf(0, 1, "-u", "-b", "8M", "-l", "200", "-t", "3", *direction)
                for _ in range(4)
            )
            udp = next(answer["sum"] for answer in asked if "sum" in answer)
            print(
                f"  lost {udp['lost_percent']:.2f} % of {udp['packets']} packets "
                f"{' '.join(direction)}"
            )
            self.assertGreater(udp["packets"], 10000)
            self.assertGreater(udp["lost_percent"], 1)
            self.assertLess(udp["lost_percent"], 3)


def machine():
    """Returns the state of the machine that a lab must not change."""
    watched = (
        ("ip", "netns"),
        ("ip", "link"),
        ("ip", "route"),
        ("nft", "list", "ruleset"),
        ("sysctl", "net.ipv4.ip_forward"),
    )
    return {" ".join(command): sorted(run(*command).stdout.splitlines()) for command in watched}


def processesWith(marker):
    """Returns the processes whose command line has the marker in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if marker in path.read_bytes().decode(errors="replace"):
                found.append(path)
    return found


class Isolation(LabCase):
    """Item 5: a lab touches nothing that it did not make."""

    def testTwoLabsAtOnceLeaveTheMachineAsItWas(self):
        before = machine()
        first, second = NAME + "-a", NAME + "-b"
        self.up("--hosts", "2", name=first)
        self.up("--hosts", "3", "--rate", "100mbit", name=second)
        mustLab("cut", "--host", "0", name=first)
        shown = [json.loads(mustLab("status", "--json", name=n).stdout) for n in (first, second)]
        self.assertEqual([len(hosts) for hosts in shown], [2, 3])
        self.assertEqual([hosts[0]["faults"] for hosts in shown], ["cut", ""])
        for command in ("ip link", "nft list ruleset", "ip route"):
            self.assertEqual(machine()[command], before[command], "even while labs are up")
        mustLab("down", name=first)
        self.assertEqual(mustLab("run", "--", "true", name=second).returncode, 0)
        mustLab("down", name=second)
        self.assertEqual(machine(), before)

    def testDownEndsWhatRunsInTheLab(self):
        self.up("--hosts", "2")
        stubborn = self.start(
            onHost(1, "bash", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done")
        )
        stubborn.stdout.readline()
        mustLab("down")
        self.assertEqual(stubborn.wait(timeout=2), -signal.SIGKILL)
        self.assertEqual(processesWith(NAME), [])


class Kills(LabCase):
    """Item 6: kill -9 of run, and in the middle of up."""

    def testAKilledRunLeavesNoProcessBehind(self):
        self.up("--hosts", "3")
        # The rank starts a child, a child in a session of its own, and a grandchild whose parent
        # has ended.
        marker = f"9{os.getpid()}.5"
        script = (
            f"sleep {marker} & setsid sleep {marker} & setsid -f sleep {marker}; echo ready; wait"
        )
        running = self.start([PROGRAM, "lab", "run", "--name", NAME, "--", "bash", "-c", script])
        for _ in range(3):
            self.assertIn("ready", running.stdout.readline())
        waitFor(lambda: len(processesWith(f"sleep\0{marker}")) == 9, 5, "nine sleepers")
        running.kill()
        killed = time.monotonic()
        waitFor(lambda: not processesWith(marker), 2, "all processes of the run are gone")
        print(f"  all gone {time.monotonic() - killed:.2f} s after kill -9")
        self.assertEqual(
            {h["processes"] for h in json.loads(mustLab("status", "--json").stdout)}, {""}
        )

    def testAKilledUpIsRepairedByTheNextUpOrDown(self):
        self.addCleanup(lab, "down")
        before = machine()
        halfMade = 0
        for attempt in range(12):
            making = subprocess.Popen(
                [PROGRAM, "lab", "up", "--name", NAME, "--hosts", "16"], stdout=subprocess.DEVNULL
            )
            time.sleep(random.uniform(0.01, 0.2))
            making.kill()
            if making.wait() == -signal.SIGKILL and lab("status").returncode == ONLY_IN_PART:
                halfMade += 1
                if attempt % 2 == 0:
                    mustLab("up", "--hosts", "2")
                    self.assertEqual(mustLab("run", "--", "true").returncode, 0)
            mustLab("down")
            self.assertEqual(machine(), before)
            self.assertEqual(processesWith(NAME), [])
        print(f"  {halfMade} of 12 were killed half-way")
        self.assertGreater(halfMade, 0)


class Rights(LabCase):
    """Item 7: no right to make namespaces, and a kernel without netem."""

    def testAMachineThatRefusesNamespacesSaysWhatIsNeeded(self):
        refuse = "echo 0 > /proc/sys/user/max_user_namespaces && exec "
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            program = shutil.copy(PROGRAM, place)
            command = ["unshare", "--user", "--map-current-user", "--keep-caps"]
            command += ["sh", "-c", f"{refuse}{program} lab up --name {NAME}"]
            ran = run(*(as_ordinary_user(*command) if os.geteuid() == 0 else command), cwd="/")
        self.assertEqual(ran.returncode, 3, ran.stderr)
        self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)
        self.assertIn("sudo sysctl user.max_user_namespaces", ran.stderr)

    def testDelayWorksOrNamesTheMissingModule(self):
        self.addCleanup(lab, "down")
        ran = lab("up", "--hosts", "2", "--delay", "10ms")
        if ran.returncode == 0:
            server = self.start(
                onHost(
                    1,
                    sys.executable,
                    "-c",
                    "import socket; s = socket.create_server(('', 7)); "
                    "print('listening', flush=True); s.accept()",
                )
            )
            server.stdout.readline()
            connect = (
                "import socket, time; t = time.monotonic(); "
                "socket.create_connection(('10.77.0.2', 7)); print(time.monotonic() - t)"
            )
            seconds = float(run(*onHost(0, sys.executable, "-c", connect)).stdout)
            self.assertGreater(seconds, 0.020)
            self.assertLess(seconds, 0.030)
        else:
            self.assertEqual(ran.returncode, 4)
            self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)
            self.assertIn("sch_netem", ran.stderr)
            self.assertNotIn(NAME, run("ip", "netns").stdout)
            self.assertIn("there is no lab", lab("status").stderr)


class Run(LabCase):
    """Tests the variables that `lab run` gives to ranks and the results that it returns."""

    def ranks(self, *args, script):
        return lab("run", *args, "--", "bash", "-c", script)

    def testRanksKnowTheirPlace(self):
        self.up("--hosts", "4")
        ran = self.ranks(
            "--hosts",
            "1-2",
            "--per-host",
            "2",
            script="echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR "
            "$GLOO_SOCKET_IFNAME $UCX_NET_DEVICES $SLUICE_IFACE $(stat -c %a "
            "$SLUICE_JOB_KEY_FILE) ${#SLUICE_JOB_KEY} $(cd /sys/class/net; echo *) $(ip -4 -o "
            "addr show eth0 | grep -o '10[0-9.]*' | head -1)",
        )
        self.assertEqual(
            sorted(ran.stdout.splitlines()),
            [
                f"[{rank}] {rank} {rank % 2} 4 2 10.77.0.2 eth0 eth0 eth0 600 0 eth0 lo "
                f"10.77.0.{2 + rank // 2}"
                for rank in range(4)
            ],
        )
        self.assertEqual(ran.returncode, 0)

    def testLinesStayWholeAndOnTheirStream(self):
        self.up("--hosts", "2")
        ran = self.ranks(
            script="for i in {1..500}; do echo out$i; echo err$i >&2; done; printf unfinished"
        )
        for rank in range(2):
            for stream, word in ((ran.stdout, "out"), (ran.stderr, "err")):
                lines = [
                    line for line in stream.splitlines() if line.startswith(f"[{rank}] {word}")
                ]
                self.assertEqual(lines, [f"[{rank}] {word}{i}" for i in range(1, 501)])
            self.assertIn(f"[{rank}] unfinished\n", ran.stdout)

    def testTheFirstFailureIsReturnedAndEndsTheOthers(self):
        self.up("--hosts", "2")
        for ending, code in (("exit 7", 7), ("kill -KILL $$", 137)):
            with self.subTest(ending=ending):
                start = time.monotonic()
                self.assertEqual(
                    self.ranks(script=f"[ $RANK = 1 ] && {ending}; sleep 50").returncode, code
                )
                self.assertLess(time.monotonic() - start, 3)
        self.assertEqual(lab("run", "--", "no-such-program").returncode, 127)

    def testATimeoutGives124(self):
        self.up("--hosts", "2")
        self.assertEqual(self.ranks("--timeout", "300ms", script="sleep 50").returncode, 124)

    def testSignalsReachTheRanks(self):
        self.up("--hosts", "2")
        for sent, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            running = self.start(
                [
                    PROGRAM,
                    "lab",
                    "run",
                    "--name",
                    NAME,
                    "--",
                    "bash",
                    "-c",
                    "echo ready; exec sleep 50",
                ]
            )
            for _ in range(2):
                running.stdout.readline()
            running.send_signal(sent)
            self.assertEqual(running.wait(timeout=3), code)
        handled = self.start(
            [
                PROGRAM,
                "lab",
                "run",
                "--name",
                NAME,
                "--",
                "bash",
                "-c",
                "trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.05; done",
            ]
        )
        for _ in range(2):
            handled.stdout.readline()
        handled.send_signal(signal.SIGUSR1)
        self.assertEqual(handled.wait(timeout=3), 0)
        self.assertEqual(sorted(handled.stdout), ["[0] saved\n", "[1] saved\n"])


if __name__ == "__main__":
    skip_without_lab()
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
