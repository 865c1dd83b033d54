"""The options of sluice.distribute() as keywords, for editors and type checkers.

Written by `sluice config python > python/sluice/_front/options.py` from the options' declarations.
"""

from typing import Literal, TypedDict


class Options(TypedDict, total=False):
    algorithm: str
    """How ranks are kept in step ('sluice algorithms' lists them). Default: sluice."""
    alpha: float
    """easgd: how far worker and centre are drawn together, 0 to 1; 0: 0.9 / workers. Default: 0."""
    busy_limit: str
    """Give up on a rank that lives but whose loop has done one piece of work for this long.
    Default: 2min."""
    check_ranks_every: int
    """PyTorch: also compare all parameters and the optimizer's state after every so many steps;
    0: never. Default: 0."""
    codec: Literal["none", "fp16", "bf16", "int8"]
    """How all-reduces shrink f32 gradients on their way. Default: none."""
    collective: Literal["auto", "direct", "ring", "halving-doubling"]
    """How all-reduces go: direct has the parameter servers' bits, the others sum in another
    order; auto: each as collective-costs says. Default: direct."""
    collective_costs: str
    """What all-reduces cost by method, for --collective auto; 'sluice bench collective
    --network' writes it."""
    compare_ranks: Literal["error", "warn", "off"]
    """PyTorch: what happens when ranks take different steps or have different parameters, where
    the algorithm keeps them equal. Default: error."""
    compute_time: str
    """mgwfbp, mgp3: how long one forward and backward pass takes, without any waiting. Default:
    100ms."""
    config: str
    """Read options from this JSON file."""
    congestion_control: Literal["cubic", "bbr", "machine"]
    """How TCP connections between ranks share a link: bbr is for long links that lose packets
    (where many send to one at once it is slower); machine: what the machine does by itself.
    Default: cubic."""
    credit: int | str
    """Bytes that may be with the network: more keeps a long link busy, less keeps urgency;
    sluice counts all destinations together, other algorithms each on its own. Default: 400000."""
    debug: str
    """What to watch over while training: gates (PyTorch parameters are NaN while their gates are
    closed), ranks (as check-ranks-every 100)."""
    dgc: bool | Literal["on", "off"]
    """allreduce, wfbp, sluice, asp, ssp: send only the largest of what gradients have
    accumulated (deep gradient compression). Default: off."""
    dgc_clip: float
    """dgc: clip gradients so that those of a step have about this norm; 0: do not. Default: 0."""
    dgc_dense_below: int
    """dgc: tensors with fewer elements are sent whole, with plain momentum: biases and norms.
    Default: 0."""
    dgc_masking: bool | Literal["on", "off"]
    """dgc: elements that are sent begin again without momentum (momentum factor masking).
    Default: on."""
    dgc_sparsity: float
    """dgc: the share of each gradient that is kept back. Default: 0.999."""
    dgc_warm_up: int
    """dgc: steps in each of the four stages in which the sparsity rises, an epoch in the paper.
    Default: 0."""
    encrypt: Literal["auto", "on", "integrity", "off"]
    """Encrypt what travels between ranks; auto: between hosts yes, on loopback addresses no;
    integrity: changed bytes are noticed, but others can read them (tcp). Default: auto."""
    error_feedback: bool | Literal["on", "off"]
    """codec, dgc: add to the next step's gradients what compression has taken away; off: lose
    it. Default: on."""
    fabric: Literal["tcp", "ucx"]
    """What moves the bytes: tcp, or ucx for RDMA and shared memory. Default: tcp."""
    flight_bytes: int | str
    """Memory for the latest events of this rank, which are saved when the job goes wrong
    (docs/trace.md); 0: none. Default: 4194304."""
    flight_dir: str
    """Keep the latest events in a file of this folder, which outlives a kill; empty: in memory."""
    flight_signal: Literal["none", "SIGUSR1", "SIGUSR2", "SIGQUIT"]
    """This signal saves the latest events, and training goes on; a handler of the program stays.
    Default: none."""
    gossip_probability: float
    """gosgd: how likely a worker sends its model to another after a step, up to 1. Default: 0.1."""
    gossip_seed: int
    """gosgd, adpsgd: another number gives other draws of when to send and to whom. Default: 1."""
    heartbeat_interval: str
    """How often a rank tells those it talks with that it lives. Default: 250ms."""
    iface: str
    """Use this network interface: a name (eth0) or a network (10.0.0.0/24) instead of the one
    that leads to rank 0."""
    insecure: bool | Literal["on", "off"]
    """Talk to other hosts without a job key: only on a network where nobody else can reach the
    ports. Default: off."""
    job: str
    """The name of this job among those whose members are agreed in the same etcd servers."""
    job_key: str
    """The job key itself, 64 hexadecimal digits; prefer job-key-file."""
    job_key_file: str
    """Read the job key from this file of mode 0600 (sluice key new makes one)."""
    layer_times: str
    """mgwfbp, mgp3: the profile with this model's layer times; without one, time goes by size."""
    leave_on_term: bool | Literal["on", "off"]
    """SIGTERM makes this rank leave at the end of its step, in good order; a handler of the
    program stays. Default: off."""
    log: str
    """Log level, also by layer: info, or warn,fabric=debug (trace, debug, info, warn, error,
    off). Default: info."""
    members: str
    """The etcd servers in which the members of a job are agreed: etcd://a,b:2379,c, or
    etcds://a,b,c for TLS."""
    members_ca: str
    """etcds: the file of the authorities that etcd's certificates are checked by; empty: the
    system's."""
    members_certificate: str
    """etcds: the file of the certificate that this process shows to etcd."""
    members_key: str
    """etcds: the file of that certificate's private key."""
    members_password_file: str
    """Read the password of members-user from this file of mode 0600."""
    members_user: str
    """The user as whom this process logs in to etcd."""
    merge: Literal["exact", "paper"]
    """mgwfbp: how tensors are merged: exact is the best there is, paper is the published
    algorithm. Default: exact."""
    metrics_address: str
    """Where metrics are served: who can reach it can read layer names. Default: 127.0.0.1."""
    metrics_port: str
    """Serve metrics for Prometheus on this port plus the local rank (docs/metrics.md); 0: any
    free one. Default: off."""
    min_members: int
    """With --members: a job that has lost so many members that fewer are left ends. Default: 1."""
    momentum_at: Literal["server", "workers", "none"]
    """asp, ssp: the keeper of SGD's momentum: the server, of all workers' steps; the workers,
    each of its own steps; or none. Default: server."""
    no_overlap: bool | Literal["on", "off"]
    """kvstore, slicing, p3, sluice, asp, ssp, easgd: push everything after backward, and begin
    forward when everything is back (kvstore: the papers' PS-Sync). Default: off."""
    overlap: bool | Literal["on", "off"]
    """asp, ssp from PyTorch: send gradients during backward; servers hold them until step(), or
    drop them (C++ programs always send during backward). Default: off."""
    payload_check: Literal["crc32c", "off"]
    """Checksum of payloads that are neither encrypted nor under --encrypt integrity, against
    bytes that change by accident. Default: crc32c."""
    pipe_depth: int
    """pipe: K; a step applies the mean gradient of K-1 steps before, 1 is synchronous. Default:
    2."""
    pipe_warm_up: int
    """pipe: so many steps at the beginning are synchronous. Default: 0."""
    placement: Literal["even", "layers"]
    """sluice, asp, ssp, easgd: even spreads each layer over all servers; layers keeps each
    tensor on one server, the papers' layer-wise sharding. Default: even."""
    reduction_rate: str
    """mgwfbp, mgp3: the speed of each rank's link, which decides what an all-reduce costs per
    byte. Default: 1gbit."""
    reduction_start: str
    """mgwfbp, mgp3: what an all-reduce costs besides its bytes. Default: 500us."""
    reductions: int
    """How many all-reduces are under way at once. Default: 1."""
    rendezvous_timeout: str
    """How long to wait at the start until every rank is here. Default: 5min."""
    replan_steps: int
    """mgwfbp: every so many steps merge anew, if what was measured says that it pays; 0: never.
    Default: 100."""
    servers: str
    """Where parameters are summed and updated: all, K (the first K ranks) or dedicated:K (the
    last K do nothing else). Default: all."""
    shrink: int
    """For measurements: 'sluice bench' divides every tensor, slice, credit and rate by this, so
    that many workers of a large model fit on one machine. Default: 1."""
    silence_limit: str
    """Give up on a rank that has not been heard for this long: longer than any pause that a rank
    survives. Default: 1900ms."""
    slice_elements: int
    """Largest number of parameters in one message; 0: what suits the algorithm (12500 for
    sluice, else 50000). Default: 0."""
    staging_bytes: int | str
    """Pinned host memory for copies from and to an accelerator, both directions together.
    Default: 8388608."""
    staleness: int
    """ssp: how many steps a worker may be ahead of the slowest, 0 to 255. Default: 3."""
    stall_after: str
    """Report a wait of this length: which tensor, which step, which ranks are missing. Default:
    10s."""
    survive_loss: bool | Literal["on", "off"]
    """ssp, easgd: go on without a worker that is lost, if it served nothing; off: end with its
    name. Default: off."""
    tau: int
    """easgd: workers and centre are drawn together every so many steps. Default: 4."""
    topology: Literal["ring", "torus", "exponential", "random-regular", "complete"]
    """adpsgd: who averages with whom. Default: ring."""
    trace: str
    """Write what each rank saw of the path of slices into this directory, at the end
    (docs/trace.md)."""
    trace_events: int
    """How many events a trace keeps at most, the latest ones; 40 bytes of memory each. Default:
    1000000."""
    trusted_network: bool | Literal["on", "off"]
    """Only this job's hosts can reach each other, so that the UCX engine may start
    (docs/fabric.md says why). Default: off."""
    ucx_transports: str
    """What the UCX engine may use, as UCX_TLS takes it: tcp, or rc,ud,tcp, or sm,tcp. Default:
    tcp."""
    update_rate: str
    """For measurements: a server's update of a slice takes its bytes / this rate (2GB/s), one
    slice after the other; 0bit: no longer than it takes. Default: 0bit."""
    wait_timeout: str
    """Give up a step that has not ended by then. Default: 10min."""
