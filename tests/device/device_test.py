"""The device behaves as its README says."""

import copy
import ctypes
import faulthandler
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import sluice_test_device as knobs
import torch
from torch.utils.data import DataLoader, TensorDataset


@pytest.fixture(autouse=True, params=["eager", "random", "adversary"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    torch.accelerator.synchronize()
    knobs.reset_statistics()
    knobs.set_mode(request.param, seed=4)
    yield request.param
    knobs.set_mode("eager")
    knobs.set_copies()


def in_child(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sluice_test_device, torch, os\n{program}"],
        capture_output=True,
        text=True,
        timeout=60,
    )


def only_once(mode: str) -> None:
    """Programs of their own take seconds, and their mode is their own."""
    if mode != "eager":
        pytest.skip("tested in one mode")


def test_is_the_accelerator() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("pretend")
    assert torch.accelerator.device_count() == 2
    assert torch.ones(2, device="pretend").device == torch.device("pretend:0")


def test_there_and_back() -> None:
    numbers = torch.randn(5, 7)
    assert torch.equal(numbers.to("pretend").cpu(), numbers)
    assert torch.equal(numbers.t().to("pretend").cpu(), numbers.t())
    assert torch.equal(numbers.to("pretend").double().cpu(), numbers.double())
    target = torch.zeros(3, 5, 7, dtype=torch.float64)
    target.copy_(numbers.to("pretend"))
    assert torch.equal(target[2], numbers.double())


def test_views_share_memory_and_do_not_wait() -> None:
    numbers = torch.arange(24.0, device="pretend").reshape(4, 6)
    view = numbers[1:3, ::2].t()
    view.mul_(-1)
    expected = torch.arange(24.0).reshape(4, 6)
    expected[1:3, ::2].mul_(-1)
    assert torch.equal(numbers.cpu(), expected)
    parts = numbers.split(2)
    assert [part.data_ptr() - numbers.data_ptr() for part in parts] == [0, 48]
    assert torch.equal(numbers.view(torch.int32).cpu(), expected.view(torch.int32))
    assert torch.equal(torch.stack(numbers.unbind()).cpu(), expected)


def test_view_leaves_its_stream_alone(mode: str) -> None:
    if mode != "adversary":
        pytest.skip("only the adversary holds work back")
    knobs.set_mode("adversary", patience=5)
    numbers = torch.zeros(8, device="pretend")
    torch.accelerator.synchronize()
    staged = torch.zeros(8, pin_memory=True)
    side = torch.Stream()
    numbers.add_(1)
    view = numbers.view(2, 4).t()
    with side:
        staged.view(2, 4).t().copy_(view, non_blocking=True)
    side.synchronize()
    assert not staged.any()


def test_out_of_every_kind() -> None:
    cpu = torch.randn(6, 6)
    device = cpu.to("pretend")
    out = torch.empty(0, device="pretend")
    torch.mul(device, 2, out=out)
    assert torch.equal(out.cpu(), cpu * 2)
    assert torch.equal(torch.where(device > 0, device, 0).cpu(), torch.where(cpu > 0, cpu, 0))
    assert torch.equal(device[device > 0].cpu(), cpu[cpu > 0])
    assert torch.equal(device[torch.tensor([1, 3])].cpu(), cpu[torch.tensor([1, 3])])
    for ours, theirs in zip(device.sort(dim=1), cpu.sort(dim=1), strict=True):
        assert torch.equal(ours.cpu(), theirs)
    assert device.sum().item() == cpu.sum().item()
    assert torch.equal(torch.cat([device, device]).cpu(), torch.cat([cpu, cpu]))
    torch._foreach_add_([device, device], 1)
    assert torch.equal(device.cpu(), cpu + 1 + 1)
    torch.manual_seed(1)
    ours = torch.randn(4, device="pretend")
    torch.manual_seed(1)
    assert torch.equal(ours.cpu(), torch.randn(4))


def test_host_scalar_may_change_after_the_call() -> None:
    numbers = torch.zeros(4, device="pretend")
    scalar = torch.tensor(1.0)
    numbers.add_(scalar)
    scalar.fill_(5)
    assert numbers.cpu().tolist() == [1, 1, 1, 1]


def test_streams_and_events() -> None:
    side = torch.Stream()
    main = torch.accelerator.current_stream()
    assert side != main
    numbers = torch.zeros(1000, device="pretend")
    side.wait_stream(main)
    with side:
        assert torch.accelerator.current_stream() == side
        numbers.add_(1)
    event = side.record_event()
    main.wait_event(event)
    numbers.mul_(3)
    assert numbers.cpu().unique().tolist() == [3]
    assert event.query()
    later = torch.Event("pretend", enable_timing=True)
    assert later.query()  # not recorded yet
    later.record()
    later.synchronize()
    counts = knobs.statistics()
    assert counts["events_recorded"] == 3
    assert counts["stream_waits"] == 2


def test_event_can_be_recorded_again() -> None:
    event = torch.Event("pretend", enable_timing=True)
    event.record()
    event.synchronize()
    other = torch.Event("pretend", enable_timing=True)
    other.record()
    event.record()
    torch.accelerator.synchronize()
    assert other.elapsed_time(event) >= 0


def test_polling_ends() -> None:
    numbers = torch.zeros(1000, device="pretend")
    numbers.add_(1)
    event = torch.accelerator.current_stream().record_event()
    end = time.monotonic() + 30
    while not event.query():
        assert time.monotonic() < end


def test_pinned_memory() -> None:
    pinned = torch.ones(1000).pin_memory()
    assert pinned.is_pinned()
    assert pinned[10:].is_pinned()
    assert not torch.ones(3).is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    counts = knobs.statistics()
    assert counts["pinned_bytes"] >= 4000
    device = pinned.to("pretend", non_blocking=True)
    back = device.to("cpu", non_blocking=True)
    assert back.is_pinned()
    torch.accelerator.synchronize()
    assert torch.equal(back, pinned)
    in_use = knobs.statistics()["pinned_bytes"]
    del back
    assert knobs.statistics()["pinned_bytes"] == in_use - 4000
    assert knobs.statistics()["changed_sources"] == 0


def test_pinned_block_is_not_reused_during_a_copy() -> None:
    device = torch.zeros(1000, device="pretend")
    torch.accelerator.synchronize()
    for value in range(10):
        pinned = torch.full((1000,), float(value), pin_memory=True)
        device.copy_(pinned, non_blocking=True)
        del pinned
        other = torch.full((1000,), -1.0, pin_memory=True)
        assert device.cpu().unique().tolist() == [value]
        del other


def test_changed_source_is_counted() -> None:
    device = torch.zeros(1000, device="pretend")
    pinned = torch.zeros(1000).pin_memory()
    knobs.set_copies(latency=0.05)
    device.copy_(pinned, non_blocking=True)
    pinned.fill_(1)
    torch.accelerator.synchronize()
    assert knobs.statistics()["changed_sources"] == 1


def test_copy_of_unpinned_memory_must_block() -> None:
    device = torch.zeros(4, device="pretend")
    with pytest.raises(Exception, match="needs pinned host memory"):
        device.copy_(torch.ones(4), non_blocking=True)
    with pytest.raises(Exception, match="needs pinned host memory"):
        torch.ones(4).copy_(device, non_blocking=True)


def test_copies_take_their_time() -> None:
    device = torch.zeros(25_000, device="pretend")
    pinned = torch.zeros(25_000).pin_memory()
    torch.accelerator.synchronize()
    knobs.reset_statistics()
    knobs.set_copies(bytes_per_second=2e6, latency=0.001)
    processor = time.process_time()
    device.copy_(pinned, non_blocking=True)
    side = torch.Stream()
    with side:
        pinned.to("pretend", non_blocking=True)
    torch.accelerator.synchronize()
    assert time.process_time() - processor < 0.05
    first, second = knobs.copy_intervals()
    assert first[0] == second[0] == "to_device"
    assert first[3] == 100_000
    assert second[2] - first[1] >= 0.101
    counts = knobs.statistics()
    assert counts["copies_to_device"] == 2
    assert counts["bytes_to_device"] == 200_000


def test_errors() -> None:
    device = torch.zeros(4, device="pretend")
    with pytest.raises(RuntimeError, match="same device"):
        device + torch.ones(4)
    with pytest.raises(RuntimeError, match="same device"):
        device + torch.ones(4, device="pretend:1")
    with pytest.raises(TypeError, match="numpy"):
        device.numpy()
    with pytest.raises(RuntimeError):
        device + torch.ones(5, device="pretend")
    with pytest.raises(RuntimeError, match="no device pretend:7"):
        torch.ones(1, device="pretend:7")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 40, device="pretend")


def test_error_of_a_queued_kernel_is_reported_later() -> None:
    index = torch.full((3,), 99, device="pretend")
    out = torch.zeros(3, device="pretend")
    torch.gather(torch.zeros(3, device="pretend"), 0, index, out=out)
    with pytest.raises(RuntimeError, match="out of bounds"):
        torch.accelerator.synchronize()
    torch.accelerator.synchronize()
    assert out.add(1).cpu().shape == (3,)


def test_two_devices() -> None:
    first = torch.arange(5.0, device="pretend:0")
    second = first.to("pretend:1")
    assert second.device == torch.device("pretend:1")
    assert second.add(1).cpu().tolist() == [1, 2, 3, 4, 5]
    with torch.accelerator.device_index(1):
        assert torch.ones(1, device="pretend").device.index == 1
        assert torch.accelerator.current_stream().device.index == 1
    assert torch.ones(1, device="pretend").device.index == 0
    weight = torch.ones(3, device="pretend:1", requires_grad=True)
    (weight * 2).sum().backward()
    assert weight.grad is not None and weight.grad.cpu().tolist() == [2, 2, 2]


def test_freed_memory_is_overwritten() -> None:
    numbers = torch.ones(1000, device="pretend")
    address = numbers.data_ptr()
    del numbers
    again = torch.empty(1000, device="pretend")
    assert again.data_ptr() == address
    assert again.isnan().all().item()
    used = torch.accelerator.memory_allocated()
    del again
    assert torch.accelerator.memory_allocated() == used - 4096


def test_storage_can_be_resized() -> None:
    numbers = torch.arange(4.0, device="pretend")
    numbers.resize_(2, 4)
    assert numbers.flatten()[:4].cpu().tolist() == [0, 1, 2, 3]
    numbers.untyped_storage().resize_(0)
    assert numbers.untyped_storage().size() == 0


def test_save_load_and_deepcopy() -> None:
    model = torch.nn.Linear(3, 2).to("pretend:1")
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["weight"].device == torch.device("pretend:1")
    assert torch.equal(loaded["weight"].cpu(), model.weight.detach().cpu())
    file.seek(0)
    assert torch.load(file, map_location="cpu")["weight"].device.type == "cpu"
    twin = copy.deepcopy(model)
    assert twin.weight.data_ptr() != model.weight.data_ptr()
    assert torch.equal(twin.weight.detach().cpu(), model.weight.detach().cpu())


def test_many_threads() -> None:
    wrong = []

    def work(number: int) -> None:
        stream = torch.Stream()
        with stream:
            for _ in range(10):
                numbers = torch.full((100,), float(number), device="pretend")
                if numbers.add(1).cpu().unique().tolist() != [number + 1]:
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_forked_loader() -> None:
    used = torch.ones(10, device="pretend")
    loader = DataLoader(
        TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=1, pin_memory=True
    )
    batches = [batch.to("pretend", non_blocking=True).cpu() for (batch,) in loader]
    assert torch.cat(batches).tolist() == list(range(8))
    assert used.cpu().sum() == 10


def test_forked_child_cannot_use_the_device(mode: str) -> None:
    numbers = torch.ones(1000, device="pretend")
    numbers.add_(1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.ones(1, device="pretend")
        except RuntimeError as error:
            code = 0 if "forked child" in str(error) else 2
        del numbers
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert numbers.cpu().unique().tolist() == [2]


def test_child_of_a_process_without_use_has_its_own(mode: str) -> None:
    only_once(mode)
    ran = in_child(
        "child = os.fork()\n"
        "print(torch.ones(3, device='pretend').add_(1).cpu().sum().item(), flush=True)\n"
        "if child: os.waitpid(child, 0)\n"
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "6.0\n6.0\n"


def test_host_access_is_a_fault() -> None:
    numbers = torch.ones(4, device="pretend")
    child = os.fork()
    if child == 0:
        faulthandler.disable()  # pytest's would report the fault
        ctypes.memset(numbers.data_ptr(), 0, 4)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV


def test_process_ends_with_work_pending(mode: str) -> None:
    only_once(mode)
    ran = in_child(
        "sluice_test_device.set_mode('adversary', patience=10)\n"
        "sluice_test_device.set_copies(latency=0.5)\n"
        "numbers = torch.ones(1000, device='pretend')\n"
        "pinned = numbers.to('cpu', non_blocking=True)\n"
        "side = torch.Stream(); side.wait_stream(torch.accelerator.current_stream())\n"
        "with side: [numbers.add_(1) for _ in range(500)]\n"
        "side.query()\n"
        "print('end')"
    )
    assert (ran.returncode, ran.stdout) == (0, "end\n"), ran.stderr


def test_autocast_casts_nothing() -> None:
    weight = torch.ones(3, 3, device="pretend")
    with torch.autocast("pretend", dtype=torch.bfloat16):
        assert (weight @ weight).dtype == torch.float32
