from collections.abc import Callable, Mapping

from torch._C._distributed_c10d import Backend, ProcessGroup

torch_release: str  # "2.13": the Torch that the module was built for

class Connection:
    def close(self) -> None: ...

class Collective:
    def __init__(self, process_group: ProcessGroup, loop: int) -> None: ...
    @property
    def address(self) -> int: ...

def connect(
    options: Mapping[str, str],
    environment: Mapping[str, str],
    timeout: float,
    published: Callable[[int], None] | None = ...,
) -> Connection: ...
def own_address(options: Mapping[str, str], environment: Mapping[str, str]) -> str: ...
def backend(connection: Connection, timeout: float) -> Backend: ...
