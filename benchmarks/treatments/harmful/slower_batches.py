"""Make each batch three times."""

TOUCHES = "what the measurement is to find out: slower"
PATCH = "# slower"


def apply(torch, given):
    original = torch.utils.data.dataloader._SingleProcessDataLoaderIter._next_data

    def thrice(self):
        given.touch()
        batch = original(self)
        for _ in range(2):
            self._dataset_fetcher.fetch(list(range(256)))
        return batch

    torch.utils.data.dataloader._SingleProcessDataLoaderIter._next_data = thrice
