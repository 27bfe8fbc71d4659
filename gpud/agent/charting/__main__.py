"""Answer questions until the input ends, behind everything else that wants a processor."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from gpud.agent.body import Body
from gpud.agent.charting.answer import found
from gpud.agent.charting.question import Nameless, Question, Reply, Trouble
from gpud.core.errors import StoreError

NICENESS: Final = 10
"""A chart may come later; a probe that is being timed and a scrape may not."""
LARGEST_BYTES: Final = 64 << 20
"""Of memory: what one large answer took, Python keeps. After more than that it begins anew."""
MOST_BYTES: Final = 512 << 20
"""Of memory at any moment: what a damaged history holds in one field may be a hundred megabytes."""
FIRST_TO_GO: Final = "500"
"""Where memory runs out, before the agent: a chart is asked for again."""
LONGEST_BYTES: Final = 2 << 20
"""Of an answer as it is sent: all that a page can show is a tenth of it."""


def answered(question: Question) -> Reply:
    """Answer one question; what is wrong with it or the history is a reply as well."""
    try:
        answer = found(Path(question.directory), question.asked, question.known)
    except StoreError as error:
        return Reply(trouble=Trouble(str(error), error.reason, error.fix))
    if isinstance(answer, Nameless):
        return Reply(nameless=answer)
    body = Body.of(answer)
    if len(body.data) > LONGEST_BYTES:
        size = f"that is {len(body.data) >> 20} MiB, compressed"
        return Reply(trouble=Trouble(size, "too_large", "ask for fewer points, or for one mode"))
    return Reply(body)


def resident_bytes() -> int:
    """Say how much memory this process has now; what ``getrusage`` tells is the agent's too."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def main() -> int:
    """Serve; the agent ends it by closing its input, alive or not."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    with suppress(OSError):  # may be kept from us, in a container
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO, encoding="ascii")
    decoder = msgspec.json.Decoder(Question)
    for line in sys.stdin.buffer:
        reply = answered(decoder.decode(line))
        last = resident_bytes() > LARGEST_BYTES
        sys.stdout.buffer.write(msgspec.json.encode(replace(reply, last=last)) + b"\n")
        sys.stdout.buffer.flush()
        if last:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main())
