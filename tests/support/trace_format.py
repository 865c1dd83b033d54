"""Checks Chrome's trace event format, as Perfetto reads it."""


def breaches(document):
    """Yields every breach of the trace event format, for the phases that are used: M, b, e, i, X,
    s and f."""
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
        if phase not in ("M", "b", "e", "i", "X", "s", "f"):
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
        if phase == "X":
            if not isinstance(event.get("dur"), (int, float)) or event["dur"] < 0:
                yield wrong("dur")
            continue
        if phase in "sf":
            if not isinstance(event.get("id"), str):
                yield wrong("id")
            continue
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
    if all(isinstance(event.get("ts", 0), (int, float)) for event in document["traceEvents"]):
        yield from breaches_of_arrows(document["traceEvents"])


def breaches_of_arrows(events):
    """Yields every arrow between ranks that a viewer would not show. Perfetto binds each end to an
    activity of phase X around it, drops activities that overlap in part, and wants the beginning
    first."""
    marks, ends = {}, {}
    for event in events:
        if event.get("cat") != "arrow":
            continue
        if event["ph"] == "X":
            marks.setdefault((event["pid"], event["tid"]), []).append(event)
        else:
            ends.setdefault((event["id"], event["name"]), []).append(event)
    for track in marks.values():
        track.sort(key=lambda mark: mark["ts"])
        for mark, following in zip(track, track[1:], strict=False):
            if nanoseconds(mark["ts"]) + nanoseconds(mark["dur"]) > nanoseconds(following["ts"]):
                yield f"{mark} overlaps {following}"
    begins_of_marks = {
        (*track, nanoseconds(mark["ts"])) for track in marks for mark in marks[track]
    }
    for arrow in ends.values():
        if [end["ph"] for end in arrow] != ["s", "f"]:
            yield f"{arrow} is no arrow from one place to another"
        elif arrow[0]["ts"] > arrow[1]["ts"] or arrow[1].get("bp") != "e":
            yield f"{arrow} goes back in time, or binds to what comes after it"
        for end in arrow:
            if (end["pid"], end["tid"], nanoseconds(end["ts"])) not in begins_of_marks:
                yield f"{end} points to nothing"


def nanoseconds(microseconds):
    return round(microseconds * 1000)


def arrows_of(document):
    """Returns (beginning, end) of every arrow between ranks. Each of the two is the mark that the
    arrow points to, which says the slice and both ranks."""
    marks, ends = {}, {}
    for event in document["traceEvents"]:
        if event.get("cat") != "arrow":
            continue
        if event["ph"] == "X":
            last = event
        else:  # its mark is written right before it
            marks[event["id"], event["ph"]] = last
            ends.setdefault(event["id"], set()).add(event["ph"])
    return [(marks[id_, "s"], marks[id_, "f"]) for id_, phases in ends.items() if len(phases) == 2]
