"""Tests the `sluice` program as a shell sees it: help, exit codes, errors, and the truth of the
documents about it.

  cli_test.py PATH_OF_SLUICE PATH_OF_SOURCE
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from trace_format import breaches

PROGRAM, SOURCE = sys.argv[1], Path(sys.argv[2])


def sluice(*args, **variables):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    return subprocess.run(
        [PROGRAM, *args], env=clean | variables, capture_output=True, text=True, timeout=60
    )


# Part of the Python package, which a build with sanitizers cannot load.
EXTERNAL = ("doctor", "device")


def allCommands(path=()):
    """Returns every command of the tree as a tuple of words, the program itself first."""
    if path == EXTERNAL:
        return
    yield path
    help_ = sluice(*path, "--help").stdout
    listed = (
        help_.split("Subcommands:\n", 1)[1].split("\n\n")[0] if "Subcommands:\n" in help_ else ""
    )
    for name in re.findall(r"^  (\S+)", listed, re.MULTILINE):
        yield from allCommands((*path, name))


class Formulas(unittest.TestCase):
    def testFormulasAreThoseOfThePapers(self):
        flags = ["--workers", "2,4,8", "--latency", "45.26us", "--rate", "10gbit", "--json"]
        ran = sluice("formulas", *flags)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        plan = json.loads(ran.stdout)
        starts = [round(1e6 * at["costs"]["ring"]["a_s"], 2) for at in plan["plans"]]
        self.assertEqual(starts, [90.52, 271.56, 633.64])  # MG-WFBP, section V-A
        self.assertEqual(len(plan["layers"]), 107)  # of ResNet-50, with batch norms
        for at in plan["plans"]:
            seconds = {one["schedule"]: one["iteration_s"] for one in at["schedules"]}
            self.assertLessEqual(seconds["mgwfbp"], seconds["mgwfbp-paper"])
            self.assertLessEqual(seconds["mgwfbp"], min(seconds["wfbp"], seconds["one-message"]))
            self.assertLessEqual(seconds["p3"], seconds["fifo"])

    def testWrongFlagsAreRefusedInOneLine(self):
        for flags in (["--method", "pigeon"], ["--workers", "1"], ["--profile", "none"]):
            ran = sluice("formulas", *flags)
            self.assertNotEqual(ran.returncode, 0)
            self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)


class Plan(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        model = {
            "model": "small",
            "note": "three layers",
            "compute_s": 0.02,
            "tensors": [
                {"name": f"w{i}", "parameters": 30_000, "forward": 1 / 9, "backward": 2 / 9}
                for i in range(3)
            ],
        }
        path = self.folder / "model.json"
        path.write_text(json.dumps(model))
        self.small = ("--profile", str(path), "--hosts", "2")

    def testItChoosesAndSaysWhy(self):
        config = self.folder / "plan.json"
        ran = sluice("plan", *self.small, "--rate", "100mbit", "--json", "-", "-o", str(config))
        self.assertEqual(ran.returncode, 0, ran.stderr)
        answer = json.loads(ran.stdout)
        self.assertIn(answer["choice"]["class"], ("same bits", "exact in another order"))
        self.assertEqual(
            [one["class"] for one in answer["best"]],
            ["same bits", "exact in another order", "delayed", "lossy or stale"],
        )
        times = [one["iteration_s"] for one in answer["candidates"]]
        self.assertEqual(times, sorted(times))
        shown = sluice("config", "show", SLUICE_CONFIG=str(config))
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn(answer["choice"]["algorithm"], shown.stdout)

    def testATableForPeopleHasTheCause(self):
        ran = sluice("plan", *self.small, "--rate", "100gbit", "--why", "kvstore")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("choice: sluice", ran.stdout)
        self.assertIn("why: computing takes 20 ms", ran.stdout)
        self.assertRegex(ran.stdout, r"kvstore would take \S+ s, \S+ times the \S+ s of sluice")

    def testWhatCannotBeIsRefusedInOneLine(self):
        for flags in (
            [],
            ["--rate", "1gbit", "--network", "net.json"],
            ["--rate", "0bit", "--compute-time", "1ms"],
            ["--rate", "1gbit"],
            ["--rate", "1gbit", "train.py"],
            ["--network", "/no/such/file"],
            ["--rate", "1gbit", "--compute-time", "1ms", "--hosts", "1"],
            [*self.small, "--rate", "1gbit", "--why", "nobody"],
        ):
            ran = sluice("plan", *flags)
            self.assertEqual(ran.returncode in (1, 2, 4), True, (flags, ran))
            last = ran.stderr.splitlines()[-1]
            self.assertTrue(last.startswith("sluice: "), ran.stderr)


class Simulate(unittest.TestCase):
    SMALL = ("--profile", "resnet110", "--shrink", "512", "--iterations", "2", "--warm-up", "1")

    def testTheSeedDecides(self):
        flags = [*self.SMALL, "--hosts", "4"]
        rows = []
        for _ in range(2):
            ran = sluice("simulate", *flags, "--seeds", "2", "--json", "-")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            rows.append(json.loads(ran.stdout))
        for first, second in zip(*rows, strict=True):
            self.assertEqual(first["trace_hashes"], second["trace_hashes"])
            self.assertEqual(len(set(first["trace_hashes"])), 2)
            self.assertGreaterEqual(first["over_bound_range"][0], 1)

    def testItSaysWhatIsLeftOut(self):
        flags = ["--hosts", "2", "--iterations", "1", "--warm-up", "0", "--shrink", "4096"]
        ran = sluice("simulate", *flags, "--seeds", "1", "--cpu", "free")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("left out (--cpu free)", ran.stdout)

    def testWrongFlagsAreRefusedInOneLine(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as topology:
            topology.write('{"hosts": {"3": {"speed": "1gbit"}}}')
            topology.flush()
            for flags in (
                ["--topology", "ring"],
                ["--topology", "/nowhere/cluster.json"],
                ["--topology", topology.name],
                ["--hosts", "1"],
                ["--cpu", "much"],
                ["--faults", "rate:3@1s+1s"],
                ["--trace-hosts", "0"],
                ["--trace", "/nowhere", "--trace-hosts", "64"],
                ["--exact", "--hosts", "4096", "--profile", "vgg19"],
            ):
                ran = sluice("simulate", *flags)
                self.assertNotEqual(ran.returncode, 0, flags)
                lines = ran.stderr.splitlines()  # that of the run under way among them
                errors = [line for line in lines if not line.startswith("run ")]
                self.assertEqual(len(errors), 1, ran.stderr)

    def testAlgorithmsThatSendLessAreNotComparedWithTheBound(self):
        flags = [*self.SMALL, "--hosts", "4", "--seeds", "1", "--algorithms", "sluice,asp"]
        ran = sluice("simulate", *flags, "--json", "-")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        ours, asp = json.loads(ran.stdout)
        self.assertGreaterEqual(ours["over_bound"], 1)
        self.assertIsNone(asp["over_bound"])
        self.assertIsNone(asp["over_bound_range"])

    def testATopologyIsReadFromAFile(self):
        flags = [*self.SMALL, "--hosts", "8", "--seeds", "1", "--algorithms", "sluice"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cluster.json"
            path.write_text(
                '{"hosts_per_rack": 4, "uplink": "5gbit", "hosts": {"3": {"in": "1gbit"}}}'
            )
            ran = sluice("simulate", *flags, "--topology", path, "--json", "-")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        (row,) = json.loads(ran.stdout)
        self.assertEqual(row["topology"], str(path))
        self.assertGreaterEqual(row["over_bound"], 1)
        self.assertGreater(row["bound_s"], 5 * row["compute_s"])  # host 3 holds all of them up

    def testTheTracesOfChosenHostsOpen(self):
        flags = [*self.SMALL, "--hosts", "4", "--seeds", "1", "--algorithms", "sluice"]
        with tempfile.TemporaryDirectory() as folder:
            ran = sluice("simulate", *flags, "--trace", folder, "--trace-hosts", "0,3")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            traces = Path(folder) / "sluice-4-1"
            names = sorted(path.name for path in traces.iterdir())
            self.assertEqual(names, [f"simulated.rank-{rank}.json" for rank in (0, 3)])
            for name in names:
                document = json.loads((traces / name).read_text())
                self.assertEqual(list(breaches(document))[:3], [], name)
            merged = sluice("trace", "merge", traces, "-o", Path(folder) / "all.json")
            self.assertEqual(merged.returncode, 0, merged.stderr)
            self.assertIn("2 ranks on rank 0's clock, to within 0.00 ms", merged.stdout)
            document = json.loads((Path(folder) / "all.json").read_text())
            self.assertEqual(list(breaches(document))[:3], [])


class Help(unittest.TestCase):
    def testEveryLevelHasHelpWithExamples(self):
        commands = list(allCommands())
        self.assertIn(("config", "show"), commands)
        for command in commands:
            with self.subTest(command=command):
                ran = sluice(*command, "--help")
                self.assertEqual(ran.returncode, 0)
                examples = ran.stdout.split("Examples:\n", 1)
                self.assertEqual(len(examples), 2, ran.stdout)
                self.assertIn(" ".join(("sluice", *command)), examples[1])

    def testExamplesNameCommandsThatExist(self):
        commands = set(allCommands())
        for command in commands:
            examples = sluice(*command, "--help").stdout.split("Examples:\n", 1)[1].split("\n\n")[0]
            for word in re.findall(r"^  .*?\bsluice ([a-z]+)", examples, re.MULTILINE):
                if not Path(PROGRAM).with_name(f"sluice-{word}").exists():  # a program of its own
                    self.assertIn((word,), commands, f"in an example of {command}")

    def testProgramsOfTheirOwnAreListedWithTheFirstLineOfTheirDescription(self):
        with tempfile.TemporaryDirectory() as folder:

            def write(name, text, mode=0o755):
                path = Path(folder, name)
                path.write_text(text)
                path.chmod(mode)

            write(
                "sluice-greet", "#!/usr/bin/env bash\n# Greets every rank.\n# Twice.\necho hello\n"
            )
            write("sluice-count", '#!/usr/bin/env python3\n"""Counts the ranks."""\nprint(3)\n')
            write("sluice-binary", "\x7fELF")
            write("sluice-notes", "# Not a program.\n", mode=0o644)
            ran = sluice("--help", PATH=f"{folder}:/nowhere:{os.environ['PATH']}")
        self.assertRegex(ran.stdout, r"(?m)^  greet +Greets every rank\.$")
        self.assertRegex(ran.stdout, r"(?m)^  count +Counts the ranks\.$")
        self.assertRegex(ran.stdout, r"(?m)^  binary +\(see its --help\)$")
        self.assertRegex(ran.stdout, r"(?m)^  plot +\S")
        self.assertNotIn("notes", ran.stdout)

    def testAProgramOfThePapersSaysWhatToInstall(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(PROGRAM, folder)  # no other program lies beside it
            for name in ("plot", "reproduce", "study"):
                ran = subprocess.run(
                    [alone, name, "-x"], env={"PATH": "/nowhere"}, capture_output=True, text=True
                )
                self.assertEqual(ran.returncode, 127)
                self.assertEqual(
                    ran.stderr,
                    f"sluice {name}: needs the package sluice-papers; install it with "
                    "'pip install sluice-papers'\n",
                )

    def testVersion(self):
        self.assertRegex(sluice("--version").stdout, r"^sluice \d+\.\d+\.\d+$")


class Algorithms(unittest.TestCase):
    def describe(self, name):
        ran = sluice("algorithms", name, "--json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return json.loads(ran.stdout)

    def testEachIsDescribedWithItsOptions(self):
        listed = json.loads(sluice("algorithms", "--json").stdout)
        self.assertGreaterEqual(len(listed), 15)
        for row in listed:
            described = self.describe(row["algorithm"])
            self.assertEqual({key: described[key] for key in row}, row)
            table = sluice("algorithms", row["algorithm"]).stdout
            self.assertTrue(table.startswith(f"{row['algorithm']}: {row['help']}\n"), table)
            for option in described["options"]:
                self.assertRegex(table, rf"(?m)^{option['option']} .*\S$")
        self.assertEqual(self.describe("bsp"), self.describe("sluice"))
        ssp = {option["option"]: option for option in self.describe("ssp")["options"]}
        self.assertEqual(
            (ssp["staleness"]["values"], ssp["staleness"]["default"]), ("integer", "3")
        )
        self.assertNotIn("tau", ssp)

    def testAnUnknownOneIsRefusedInOneLine(self):
        ran = sluice("algorithms", "spp")
        self.assertNotEqual(ran.returncode, 0)
        self.assertRegex(ran.stderr, r"^sluice: there is no algorithm 'spp'; use one of .*ssp.*\n$")

    def testCommandsThatTrainTakeTheirOptionsAndDoNotListThem(self):
        names = [row["algorithm"] for row in json.loads(sluice("algorithms", "--json").stdout)]
        options = {
            option["option"]: option["default"] or "x"
            for name in names
            for option in self.describe(name)["options"]
        }
        self.assertGreaterEqual(len(options), 30)
        # Each command reads its flags and then ends for a reason of its own.
        for command, flags, reason in (
            ("bench replay", [], "say --lab"),
            ("bench sweep", [], "say --lab"),
            ("simulate", ["--hosts", "1"], "--hosts has 1; give 2 to 4096"),
        ):
            text = sluice(*command.split(), "--help").stdout
            lines = text.rstrip().splitlines()
            self.assertLessEqual(len(lines), 80)
            self.assertEqual(lines[-1], "Options of one algorithm: sluice algorithms NAME")
            listed = set(re.findall(r"(?m)^  --([\w-]+)", text))
            self.assertLessEqual(listed & options.keys(), {"topology"})  # simulate has its own
            given = [f"--{name}={value}" for name, value in options.items() if name not in listed]
            ran = sluice(*command.split(), *given, *flags)
            self.assertIn(reason, ran.stderr)

    def testAnOptionThatIsNotListedIsRead(self):
        flags = [*Simulate.SMALL, "--hosts", "2", "--algorithms", "ssp", "--staleness", "300"]
        ran = sluice("simulate", *flags)
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("--staleness is 300; give 0 to 255", ran.stderr)


class Errors(unittest.TestCase):
    def testAnOpenSslWithoutCiphersIsNamed(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket() as taken:
            Path(folder, "openssl.cnf").write_text(
                "openssl_conf = a\n[a]\nproviders = b\n[b]\nbase = c\n[c]\nactivate = 1\n"
            )
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            taken.close()
            for encrypt in ("on", "integrity"):
                launch = {
                    "WORLD_SIZE": "2",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "SLUICE_LOG": "error",
                    "SLUICE_ENCRYPT": encrypt,
                    "OPENSSL_CONF": str(Path(folder, "openssl.cnf")),
                }
                ranks = [
                    subprocess.Popen(
                        [PROGRAM, "bench", "fabric-rank", '{"case": "pair", "seconds": 1}'],
                        text=True,
                        env=os.environ | launch | {"RANK": str(rank)},
                        stderr=subprocess.PIPE,
                        stdout=subprocess.DEVNULL,
                    )
                    for rank in range(2)
                ]
                for rank in ranks:
                    said = rank.communicate(timeout=60)[1]
                    self.assertEqual((rank.returncode, said.count("\n")), (4, 1), said)
                    self.assertIn("OPENSSL_CONF", said)

    def assertFails(self, ran, code, *said):
        self.assertEqual(ran.returncode, code, ran.stderr)
        self.assertEqual(ran.stderr.count("\n"), 1, f"one line, not: {ran.stderr}")
        for text in said:
            self.assertIn(text, ran.stderr)

    def testAWrongFlagIsAUsageErrorThatNamesTheHelp(self):
        self.assertFails(
            sluice("config", "show", "--jsn"), 2, "--jsn", "see 'sluice config show --help'"
        )

    def testAWrongValueIsAUsageErrorThatNamesTheVariable(self):
        self.assertFails(
            sluice("config", "show", SLUICE_LOG="loud"), 2, "'loud' is not a log level"
        )

    def testAMissingConfigurationFileIsNamed(self):
        self.assertFails(
            sluice("--config", "/nowhere/x.json", "config", "show"), 1, "/nowhere/x.json"
        )

    def testAnUnknownCommandIsAnsweredWithTheNearest(self):
        self.assertFails(sluice("confg"), 127, "no program sluice-confg", "did you mean 'config'?")
        self.assertFails(sluice("xyzzyplugh"), 127, "'sluice --help' lists the commands")

    def testAGroupAloneShowsWhatItOffers(self):
        ran = sluice("config")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("show", ran.stdout)


class External(unittest.TestCase):
    def testACommandThatIsNotBuiltInIsAProgramOnThePath(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "sluice-hello")
            program.write_text('#!/bin/sh\necho "hello $@"\nexit 7\n')
            program.chmod(0o755)
            ran = sluice("hello", "--loud", "world", PATH=f"{folder}:{os.environ['PATH']}")
        self.assertEqual((ran.returncode, ran.stdout), (7, "hello --loud world\n"))


class ConfigShow(unittest.TestCase):
    def rows(self, *args, **variables):
        ran = sluice(*args, "config", "show", "--json", **variables)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return {row["option"]: row for row in json.loads(ran.stdout)}, ran.stderr

    def testSaysWhereEachValueCameFrom(self):
        log = lambda *args, **variables: self.rows(*args, **variables)[0]["log"]
        self.assertEqual((log()["value"], log()["from"]), ("info", "default"))
        self.assertEqual(log(SLUICE_LOG="warn")["from"], "environment SLUICE_LOG")
        self.assertEqual(log("--log", "error", SLUICE_LOG="warn")["from"], "flag --log")

    def testASecretIsNotShown(self):
        key = "17" * 32
        rows, said = self.rows(SLUICE_JOB_KEY=key)
        self.assertEqual(
            (rows["job-key"]["value"], rows["job-key"]["from"]),
            ("(set)", "environment SLUICE_JOB_KEY"),
        )
        table = sluice("config", "show", SLUICE_JOB_KEY=key)
        self.assertNotIn(key, json.dumps(rows) + said + table.stdout + table.stderr)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "sluice.json")
            file.write_text(json.dumps({"job-key": key}))
            file.chmod(0o644)
            refused = sluice("--config", str(file), "config", "show")
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("chmod 600", refused.stderr)
            self.assertNotIn(key, refused.stderr)
            file.chmod(0o600)
            self.assertEqual(self.rows("--config", str(file))[0]["job-key"]["value"], "(set)")

    def testTheTableHasTheSameRows(self):
        rows, _ = self.rows()
        table = sluice("config", "show").stdout.splitlines()
        self.assertEqual([line.split()[0] for line in table[1:]], list(rows))

    def testAnUnknownVariableIsAnsweredWithTheNearest(self):
        _, said = self.rows(SLUICE_LGO="debug")
        self.assertRegex(
            said,
            r"^\d\d:\d\d:\d\d\.\d{3} warning config: unknown variable 'SLUICE_LGO'; "
            r"did you mean 'SLUICE_LOG'\?\n$",
        )


class Documents(unittest.TestCase):
    def testTheExitCodesAreThoseOfTheHeader(self):
        header = (SOURCE / "tools/cli/program.h").read_text()
        codes = {int(code) for code in re.findall(r"^  k\w+ = (\d+),", header, re.MULTILINE)}
        document = (SOURCE / "docs/command-line.md").read_text()
        self.assertEqual(
            {int(code) for code in re.findall(r"^\| (\d+) \|", document, re.MULTILINE)}, codes
        )
        summary = re.search(r"Exit codes: (.*)\.", sluice("--help").stdout)[1]
        self.assertEqual({int(code) for code in re.findall(r"\d+", summary)}, codes)

    def testTheListOfOptionsIsUpToDate(self):
        self.assertEqual(
            (SOURCE / "docs/configuration.md").read_text(),
            sluice("config", "docs").stdout,
            "run: build/dev/bin/sluice config docs > docs/configuration.md",
        )

    def testTheOptionsInPythonAreUpToDate(self):
        self.assertEqual(
            (SOURCE / "python/sluice/_front/options.py").read_text(),
            sluice("config", "python").stdout,
            "run: build/dev/bin/sluice config python > python/sluice/_front/options.py",
        )

    def testTheGlossaryHasEveryStage(self):
        header = (SOURCE / "include/sluice/observer.h").read_text()
        glossary = (SOURCE / "docs/glossary.md").read_text()
        names = dict(re.findall(r"case Stage::(k\w+): return \"([\w-]+)\";", header))
        path = re.search(r"kPath\{(.*?)\}", header, re.DOTALL)[1]
        wanted = [names[stage] for stage in re.findall(r"Stage::(k\w+)", path)]
        self.assertGreaterEqual(len(wanted), 10)
        table = glossary.partition("## The path of a slice")[2]
        self.assertEqual(re.findall(r"(?m)^\| `([\w-]+)` \| `\w+/` \|", table), wanted)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
