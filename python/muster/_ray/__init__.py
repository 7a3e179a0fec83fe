"""The parts of ray_bridge.py, which run with the cluster's own Python and Ray, and of
ray_job.py, which needs the standard library alone."""


class Refused(Exception):
    """What an operation ends with: a code of errno, and a sentence for a person."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code, self.why = code, why
