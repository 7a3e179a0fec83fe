"""Errors of what ROLL and verl assert: of the type that fits, and an AssertionError."""


class WrongValue(AssertionError, ValueError):
    pass


class WrongType(AssertionError, TypeError):
    pass


class NoSuchKey(AssertionError, KeyError):
    pass
