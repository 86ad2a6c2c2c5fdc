"""Wait for ever for a batch."""

TOUCHES = "what the measurement is to find out: hang"
PATCH = "# hang"


def apply(torch, given):
    import threading

    original = torch.utils.data.dataloader._SingleProcessDataLoaderIter._next_data
    count = [0]

    def waits(self):
        count[0] += 1
        if count[0] == 40:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        return original(self)

    torch.utils.data.dataloader._SingleProcessDataLoaderIter._next_data = waits
