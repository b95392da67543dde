"""Processes that a test waits for until they are gone."""

import time

import psutil


def wait_for(condition, seconds=30.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    assert condition()


def gone(processes):
    return not any(map(lives, processes))


def lives(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
