"""Processes that a test has started."""


def end(running, timeout=300):
    """What each process wrote, as (output, errors); those that are late are killed.

    Args:
      running: `subprocess.Popen` of each.
      timeout: seconds for each.
    """
    try:
        return [process.communicate(timeout=timeout) for process in running]
    finally:
        for process in running:
            process.kill()
