"""Checks Chrome's trace event format, as Perfetto reads it."""


def breaches(document):
    """Yields every breach of the trace event format, for the phases that are used: M, b, e and
    i."""
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        yield "no list traceEvents"
        return
    if document.get("displayTimeUnit") not in ("ms", "ns"):
        yield "displayTimeUnit"
    open_ = {}
    for number, event in enumerate(document["traceEvents"]):

        def wrong(what):
            return f"event {number} {event}: {what}"

        phase = event.get("ph")
        if phase not in ("M", "b", "e", "i"):
            yield wrong("phase")
            continue
        if not isinstance(event.get("name"), str) or not event["name"]:
            yield wrong("name")
        if not all(type(event.get(key)) is int and event[key] >= 0 for key in ("pid", "tid")):
            yield wrong("pid or tid")
        if phase == "M":
            wanted = {
                "process_name": ("name", str),
                "thread_name": ("name", str),
                "process_sort_index": ("sort_index", int),
                "thread_sort_index": ("sort_index", int),
            }.get(event["name"])
            if wanted is None or not isinstance(event.get("args", {}).get(wanted[0]), wanted[1]):
                yield wrong("metadata")
            continue
        if not isinstance(event.get("ts"), (int, float)) or event["ts"] < 0:
            yield wrong("ts")
            continue
        if not isinstance(event.get("cat"), str):
            yield wrong("cat")
        if phase == "i":
            if event.get("s") not in ("g", "p", "t"):
                yield wrong("scope")
            continue
        key = (event.get("cat"), event.get("id"))
        if not isinstance(key[1], str):
            yield wrong("id")
        elif phase == "b":
            if key in open_:
                yield wrong("began twice")
            open_[key] = event
        else:
            begun = open_.pop(key, None)
            if begun is None:
                yield wrong("ends without having begun")
            elif (
                any(begun[k] != event.get(k) for k in ("name", "pid", "tid"))
                or event["ts"] < begun["ts"]
            ):
                yield wrong(f"does not fit its beginning {begun}")
    for event in open_.values():
        yield f"{event} never ends"
