"""The tests that do not run on the device of place.py, and the reason for each. The name of a test
without its parameters is all of its cases."""

EXCEPTIONS = {
    "test_composes.py::test_loops[autocast]": "the device has no autocast",
    "test_composes.py::test_loops[scaled]": "the device has no autocast; test_device.py scales",
    "test_composes.py::test_models[attention]": "the device has no LSTM",
    "test_composes.py::test_torch_compile": "the device has no torch.compile",
    "test_composes.py::test_the_first_rounds_end_as_with_ddp": (
        "on a device backward() leaves its waits to whoever looks at a gradient next"
    ),
    "test_composes.py::test_a_sparse_gradient_is_an_error": "the device has no sparse tensors",
    "test_pipe.py::test_a_process_group_that_is_written_in_python": (
        "starts a new program, which trains in the host's memory"
    ),
}


def reason_of(node: str) -> str | None:
    """Returns the reason why the test with pytest's name `node` does not run on the device."""
    name = node.rpartition("/")[2]
    return EXCEPTIONS.get(name) or EXCEPTIONS.get(name.partition("[")[0])
