"""The tests that do not run on the device of place.py, and the reason for each. The name of a test
without its parameters is all of its cases."""

EXCEPTIONS = {
    "test_composes.py::test_loops[autocast]": "the device has no autocast",
    "test_composes.py::test_loops[scaled]": "the device has no autocast; test_device.py scales",
    "test_composes.py::test_models[attention]": "the device has no LSTM",
    "test_composes.py::test_torch_compile": "the device has no torch.compile",
    "test_composes.py::test_refusals_say_what_to_do": "scripts a module, and trains nothing",
    "test_pipe.py::test_a_process_group_that_is_written_in_python": (
        "starts a new program, which trains in the host's memory"
    ),
}


def reason_of(node: str) -> str | None:
    """Returns the reason why the test with pytest's name `node` does not run on the device."""
    name = node.rpartition("/")[2]
    return EXCEPTIONS.get(name) or EXCEPTIONS.get(name.partition("[")[0])
