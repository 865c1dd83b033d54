"""The tests that do not run on the device of place.py, and the reason for each. The name of a test
without its parameters is all of its cases."""

EXCEPTIONS = {
    "composes_test.py::test_loops[autocast]": "the device has no autocast",
    "composes_test.py::test_loops[scaled]": "the device has no autocast; device_test.py scales",
    "composes_test.py::test_models[attention]": "the device has no LSTM",
    "composes_test.py::test_torch_compile": "the device has no torch.compile",
    "composes_test.py::test_the_first_rounds_end_as_with_ddp": (
        "on a device backward() leaves its waits to whoever looks at a gradient next"
    ),
    "composes_test.py::test_a_sparse_gradient_is_an_error": "the device has no sparse tensors",
    "pipe_test.py::test_a_process_group_that_is_written_in_python": (
        "starts a new program, which trains in the host's memory"
    ),
}


def reason_of(node: str) -> str | None:
    """Returns the reason why the test with pytest's name `node` does not run on the device."""
    name = node.rpartition("/")[2]
    return EXCEPTIONS.get(name) or EXCEPTIONS.get(name.partition("[")[0])
