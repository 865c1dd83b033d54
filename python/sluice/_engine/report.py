"""The text of sluice.report() for one model."""

from __future__ import annotations

from sluice import _core
from sluice._engine.training import Training


def report(training: Training, session: _core.Session) -> str:
    """Says where the time has gone since the plan was made."""
    job, spent = training.job, training.spent
    seconds, rounds = spent.elapsed, spent.planned_rounds
    sent, received = session.bytes_moved
    waited, travelled = spent.waited, session.seconds_on_the_way
    lines = [
        f"'{training.name}' on rank {job.rank} of {job.world_size}: "
        f"{spent.rounds} rounds of gradients in {seconds:.1f} s, {1e3 * seconds / rounds:.0f} ms "
        "each",
        f"  waited for parameters  {waited:8.2f} s  {100 * waited / seconds:5.1f} %",
        f"  computed               {seconds - waited:8.2f} s",
        f"  gradients on their way {travelled:8.2f} s  "
        f"{100 * max(0.0, 1 - waited / max(travelled, 1e-9)):5.1f} % hidden "
        "behind computing",
        f"  sent {sent / 1e6:.1f} MB, received {received / 1e6:.1f} MB, "
        f"{8 * sent / max(travelled, 1e-9) / 1e6:.0f} Mbit/s "
        "while on their way",
        _describe_bound(training, session, seconds, rounds),
    ]
    waits_by_layer = zip(session.waited, training.slots, strict=True)
    for one, slot in sorted(waits_by_layer, key=lambda wait: -wait[0])[:5]:
        lines.append(f"  {slot.name:40} {one:8.2f} s")
    return "\n".join(lines)


def _describe_bound(training: Training, session: _core.Session, seconds: float, rounds: int) -> str:
    """Compares with P3's bound, with the layers' times as they were in training and the network as
    fast as it has been seen."""
    spent = training.spent
    if not spent.times.are_known:
        return "  P3's bound is not known: the events of this device have no times"
    # The gates are in the order of the forward pass.
    gates = list(dict.fromkeys(slot.gate for slot in training.slots))
    forward, backward = spent.times.forward, spent.times.backward
    layers = [
        (
            forward.get(gate, 0.0) / rounds,
            backward.get(gate, 0.0) / rounds,
            float(
                sum(slot.parameter.numel() * slot.parameter.element_size() for slot in gate.slots)
            ),
        )
        for gate in gates
    ]
    passes = sum(layer[0] + layer[1] for layer in layers)
    besides = max(0.0, (seconds - spent.waited) / rounds - passes)
    # In all rounds but the first, the time on the way includes waits for gradients.
    travelled = session.seconds_on_the_way / (rounds + 1)
    wire = min(spent.first_round or travelled, travelled)
    bound = _core.p3_bound(layers, wire / sum(size for _, _, size in layers)) + besides
    sent = session.bytes_moved[0] / (rounds + 1)
    without = " without late gradients" if training.delays else ""
    return (
        f"  no schedule{without} takes less than {1e3 * bound:.0f} ms, P3's bound: "
        f"{1e3 * passes:.0f} ms forward and "
        f"backward, {1e3 * besides:.0f} ms besides, {1e3 * wire:.0f} ms on the wire at "
        f"{8e-6 * sent / max(wire, 1e-9):.0f} Mbit/s; this took "
        f"{seconds / rounds / max(bound, 1e-9):.2f} of it"
    )
