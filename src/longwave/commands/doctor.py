"""this machine, and which backend each op uses and why"""

from collections.abc import Sequence

from longwave.flags import parse


def run(argv: Sequence[str]) -> None:
    parse("doctor", argv)
    from longwave.doctor import doctor

    doctor()
