"""Ask the kernel to run the calling thread ahead of the machine's other work."""

import os

# Above every ordinary process, below the kernel's own real-time threads.
REALTIME_PRIORITY = 10
NICE_STEP = -10


def raise_priority() -> str:
    """Give the calling thread real-time priority, else a better nice value, else nothing.

    Returns
    -------
    str
        ``"fifo"``, ``"nice"`` or ``"normal"``: what the kernel allowed. Children started by the thread fall
        back to normal.
    """
    try:
        # pid 0 is the calling thread
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(REALTIME_PRIORITY))
    except PermissionError:
        pass
    else:
        return "fifo"
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICE_STEP)
    except PermissionError:
        return "normal"
    return "nice"
