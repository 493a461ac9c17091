"""tutti as a backend of torch.distributed, enough for DistributedDataParallel: all_reduce, broadcast, all_gather, barrier.

    import tutti_process_group
    tutti_process_group.register("build/release/examples/libtutti_torch.so")
    torch.distributed.init_process_group("tutti", ...)       # as with "gloo"

Tensors of the CPU; those that all_reduce gets again and again are registered (docs/memory.md). Operations run on one thread of the group in the order in which they were issued, so that the backward
pass goes on meanwhile. The ranks of a group meet at a file of this machine.
Written for torch 1.13 (Debian 12), by what its own test of process groups in Python does (test_c10d_pypg.py).
"""
import atexit
import ctypes
import queue
import shutil
import tempfile
import threading
import weakref

import torch
import torch.distributed as dist

TYPES = {torch.float32: b"float32", torch.float64: b"float64", torch.float16: b"float16", torch.bfloat16: b"bfloat16",
         torch.int64: b"int64", torch.int32: b"int32"}
REDUCTIONS = {"SUM": 0, "PRODUCT": 1, "MIN": 2, "MAX": 3}  # as in tutti_torch.cpp


def load(path):
    lib = ctypes.CDLL(path)
    p, n, i = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for name, result, args in (("error", ctypes.c_char_p, []), ("open", p, [ctypes.c_char_p, ctypes.c_double, i]), ("close", None, [p]),
                               ("all_reduce", i, [p, p, n, ctypes.c_char_p, i]), ("broadcast", i, [p, p, n, i]),
                               ("all_gather", i, [p, p, p, n]), ("barrier", i, [p]), ("register", p, [p, p, n]), ("end", None, [p])):
        f = getattr(lib, "tutti_torch_" + name)
        f.restype, f.argtypes = result, args
    return lib


class Work(dist._Work):
    """An operation under way. wait() raises where it has failed, and so does DistributedDataParallel's backward().

    torch 1.13 calls wait() of a work that C++ makes of a future, which swallows the error, and set_exception() of a future
    leaves C++ a value that is no tensor. An exception in a callback is the one way in which a future of Python's fails in C++.
    """

    def __init__(self, result):
        super().__init__()
        self._failure = None
        self._ended = torch.futures.Future()
        self._future = self._ended.then(lambda _: self._outcome(result))

    def _outcome(self, result):
        if self._failure is not None:
            raise self._failure
        return result

    def end(self, failure=None):
        self._failure = failure
        self._ended.set_result(None)

    def wait(self, timeout=None):
        self._ended.wait()
        self._outcome(None)
        return True

    def is_completed(self):
        return self._ended.done()

    def get_future(self):
        return self._future


def holders(storage):
    """The number of those that hold a storage, the argument included."""
    if hasattr(torch._C, "_storage_Use_Count"):
        return torch._C._storage_Use_Count(storage._cdata)
    return ctypes.c_size_t.from_address(storage._cdata + 8).value  # torch 1.13: the count of an intrusive_ptr_target


def owns_memory(storage):
    return getattr(storage, "resizable", lambda: True)()  # torch 1.13 does not tell


class Registrations:
    """Memory that all_reduce gets again and again, such as DistributedDataParallel's buckets: registered at the second
    time, so that the ranks of a machine reduce it where it lies.

    Each storage is held while it is registered, so torch neither frees it nor gives its memory to another tensor. When
    nobody else holds it, nobody can write to it, and the registration ends. Memory that torch does not own, such as
    numpy's, is not registered where torch tells, from 2.0 on. A storage in use must not be resized.
    """
    LEAST = 64 << 10  # bytes

    def __init__(self, lib, group):
        self._lib, self._group = lib, group
        self._held = {}  # by address and bytes: storage and registration
        self._seen = {}  # by address and bytes, of what came once: whether it has been refused

    def use(self, tensor):
        self.end([key for key, (storage, _) in self._held.items() if holders(storage) == 1])
        key = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        if key[1] < self.LEAST or key in self._held:
            return
        if key not in self._seen:
            self._seen[key] = False
            if len(self._seen) > 1000:
                self._seen.pop(next(iter(self._seen)))
        elif not self._seen[key]:
            storage = tensor.storage().untyped()
            registration = self._lib.tutti_torch_register(self._group, *key) if owns_memory(storage) else None
            if registration:
                self._held[key] = storage, registration
            self._seen[key] = not registration

    def end(self, keys=None):
        for key in list(self._held) if keys is None else keys:
            storage, registration = self._held.pop(key)
            self._lib.tutti_torch_end(registration)  # before the storage goes

    def __len__(self):
        return len(self._held)


class ProcessGroupTutti(dist.ProcessGroup):
    def __init__(self, lib, rendezvous, rank, size, timeout, order):
        super().__init__(rank, size)
        self._lib = lib
        self._size = size
        self._group = lib.tutti_torch_open(rendezvous.encode(), timeout.total_seconds(), order == "rank")
        if not self._group:
            raise RuntimeError("tutti: " + lib.tutti_torch_error().decode())
        self.registrations = Registrations(lib, self._group)
        self._queue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        # A daemon thread is ended in the middle of a call as Python ends, which C++ does not survive.
        at_exit = weakref.WeakMethod(self.close)
        atexit.register(lambda: (close := at_exit()) and close())

    def _serve(self):
        while (next_one := self._queue.get()) is not None:
            run, work = next_one
            try:
                run()
                work.end()
            except Exception as e:
                work.end(e)
        self.registrations.end()
        self._lib.tutti_torch_close(self._group)

    def close(self):
        """Ends the group, on all ranks, when what it was asked for is done. The interpreter's end does it, too."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _start(self, result, run):
        work = Work(result)
        self._queue.put((run, work))
        return work

    def _call(self, name, *args):  # without Python's lock: ctypes lets it go
        if getattr(self._lib, "tutti_torch_" + name)(self._group, *args) != 0:
            raise RuntimeError(f"tutti: {self._lib.tutti_torch_error().decode()}")

    def getBackendName(self):
        return "tutti"

    def allreduce(self, tensors, opts):
        if any(t.dtype not in TYPES for t in tensors):
            raise TypeError(f"tutti: no all_reduce of {[t.dtype for t in tensors]}")
        how = next((number for name, number in REDUCTIONS.items() if opts.reduceOp == getattr(dist.ReduceOp, name)), None)
        if how is None:
            raise TypeError("tutti: all_reduce adds, multiplies, or takes the least or the most")

        def run():
            for t in tensors:
                c = t.contiguous()
                self.registrations.use(c)
                self._call("all_reduce", c.data_ptr(), c.numel(), TYPES[c.dtype], how)
                if c.data_ptr() != t.data_ptr():
                    t.copy_(c)

        return self._start(tensors, run)

    def broadcast(self, tensors, opts):
        root = opts.rootRank

        def run():
            for t in tensors:
                c = t.contiguous()
                self._call("broadcast", c.data_ptr(), c.numel() * c.element_size(), root)
                if c.data_ptr() != t.data_ptr():
                    t.copy_(c)

        return self._start(tensors, run)

    def allgather(self, outputs, inputs, opts=None):
        def run():
            for lists, t in zip(outputs, inputs):
                c = t.contiguous()
                all_of_them = torch.empty((self._size, c.numel()), dtype=c.dtype)
                self._call("all_gather", c.data_ptr(), all_of_them.data_ptr(), c.numel() * c.element_size())
                for out, one in zip(lists, all_of_them):
                    out.copy_(one.view_as(out))

        return self._start(outputs, run)

    def barrier(self, opts=None):
        return self._start([], lambda: self._call("barrier"))


def register(library, order="any", rendezvous=None):
    """Makes "tutti" a backend. `order="rank"`: sums from rank 0 on, whose bits do not depend on bucket_cap_mb.
    `rendezvous`: a URL (docs/rendezvous.md) instead of a file of this machine."""
    lib = load(library)

    def create(store, rank, size, timeout):
        folder = None
        where = rendezvous
        if where is None:
            if rank == 0:
                folder = tempfile.mkdtemp(prefix="tutti-")
                store.set("tutti", f"file://{folder}/meet")
            where = store.get("tutti").decode()
        try:
            return ProcessGroupTutti(lib, f"{where}?rank={rank}&world_size={size}", rank, size, timeout, order)
        finally:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)

    dist.Backend.register_backend("tutti", create)
