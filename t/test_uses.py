"""What a class that is sent by value uses: imported once, before the fork."""

import json

import cloudpickle
import numpy
import pytest
from muster._cluster.worker_class import modules_used
from pytest import approx


def _help() -> object:
    return approx(1)


class Base:
    @staticmethod
    def fixed() -> object:
        return cloudpickle.dumps


class Worker(Base):
    limit = 3

    def work(self) -> object:
        return [numpy.zeros(n) for n in range(self.limit)], json

    @property
    def helped(self) -> object:
        return _help()


def test_of_its_code_its_bases_and_its_helpers() -> None:
    """But not what every worker has, nor what nobody uses."""
    assert modules_used(Worker) == [approx.__module__, "numpy"]
    assert modules_used(Base) == []


def test_of_a_closure() -> None:
    def make(module: object) -> type:
        class Inner:
            def work(self) -> object:
                return module

        return Inner

    assert modules_used(make(pytest)) == ["pytest"]
