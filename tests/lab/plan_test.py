"""Plans a training of four hosts in a lab, as a job, and checks that the plan has seen the network:
one host has a slower link than the others.

  plan_test.py PATH_OF_SLUICE [--script] [--deadline]

With --script, the plan measures a training script's model, too; that needs the Python package in the
build tree. With --deadline, all candidates are predicted, in 30 s at most: for an optimised program
on a quiet machine.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from lab_job import Lab
from root import skip_without_lab

PROGRAM = str(Path(sys.argv[1]).resolve())
HOSTS = 4
SECONDS = 30
WAIT = 160  # on a busy machine
SCRIPT = """
import sys
import torch

assert sys.argv[1:] == ["--width", "256"], sys.argv
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    loss = model(torch.ones(8, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def plan(lab, folder, *words):
    """Returns what rank 0 has printed, and how long the whole took."""
    begin = time.monotonic()
    ran = subprocess.run(
        [PROGRAM, "lab", "run", "--name", lab.name, "--", PROGRAM, "plan", *words],
        capture_output=True,
        text=True,
        timeout=WAIT,
        cwd=folder,
    )
    if ran.returncode != 0:
        sys.exit(f"sluice plan ended with {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout, time.monotonic() - begin


def main():
    with tempfile.TemporaryDirectory() as folder, Lab(PROGRAM, HOSTS, "400mbit") as lab:
        lab.call("set", "--host", "2", "--rate", "100mbit")
        path = Path(folder) / "plan.json"
        words = ["--profile", "resnet18", "--compute-time", "100ms", "--json", str(path)]
        if "--deadline" not in sys.argv:
            words += ["--only", "same-bits"]
        shown, seconds = plan(lab, folder, *words)
        answer = json.loads(path.read_text())
        wrong = []
        if not 0.8 * 400e6 < answer["rate_bits_per_s"] < 1.1 * 400e6:
            wrong.append(f"the links have {answer['rate_bits_per_s']} bit/s, not 400 Mbit/s")
        if "link of" not in answer["cause"] or "Mbit/s" not in answer["cause"]:
            wrong.append(f"the cause names no link: {answer['cause']}")
        if "every host's" in answer["cause"]:
            wrong.append(f"the cause does not know the slow host: {answer['cause']}")
        if answer["hosts"] != HOSTS or "choice: " not in shown:
            wrong.append("rank 0 has not printed the plan of four hosts")
        if "--deadline" in sys.argv and seconds > SECONDS:
            wrong.append(f"the plan took {seconds:.0f} s")
        if wrong:
            sys.exit("\n".join([*wrong, shown]))
        print(f"ok: planned in {seconds:.1f} s: {answer['cause']}")
        if "--script" in sys.argv:
            script = Path(folder) / "train.py"
            script.write_text(SCRIPT)
            shown, seconds = plan(lab, folder, "--json", str(path), str(script), "--width", "256")
            answer = json.loads(path.read_text())
            if answer["profile"] != "Sequential" or not answer["compute_s"] > 0:
                sys.exit(f"the script's model was not measured\n{shown}")
            print(f"ok: planned a script in {seconds:.1f} s: {answer['cause']}")


if __name__ == "__main__":
    skip_without_lab()
    main()
