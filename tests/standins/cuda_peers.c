/* Copies between two GPUs of the stand-in libcuda.so.1, and the access of one to the other's memory. */
#include "libcuda.h"

enum {
    PEER_ACCESS_UNSUPPORTED = 217,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
};

static bool access[MAX_DEVICES][MAX_DEVICES]; /* of the first to the second one's memory */

static int device_of(CUcontext context)
{
    for (int i = 0; context && i < settings.devices; i++)
        if (settings.device[i].context == (uintptr_t)context)
            return i;
    return -1;
}

void peers_close(int device)
{
    for (int i = 0; i < MAX_DEVICES; i++)
        access[device][i] = access[i][device] = false;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *able, CUdevice device, CUdevice peer)
{
    ENTER(INITIALIZED);
    REQUIRE(able, INVALID_VALUE);
    REQUIRE(device >= 0 && device < settings.devices && peer >= 0 && peer < settings.devices,
            INVALID_DEVICE);
    *able = device != peer && settings.peer_access;
    return SUCCESS;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext context, unsigned flags)
{
    ENTER(CONTEXT);
    int peer = device_of(context), own = current_index();
    REQUIRE(peer >= 0 && peer != own, INVALID_CONTEXT);
    REQUIRE(!flags, INVALID_VALUE);
    REQUIRE(settings.peer_access, PEER_ACCESS_UNSUPPORTED);
    REQUIRE(!access[own][peer], PEER_ACCESS_ALREADY_ENABLED);
    access[own][peer] = true;
    return SUCCESS;
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext context)
{
    ENTER(CONTEXT);
    int peer = device_of(context), own = current_index();
    REQUIRE(peer >= 0 && peer != own, INVALID_CONTEXT);
    REQUIRE(access[own][peer], PEER_ACCESS_NOT_ENABLED);
    access[own][peer] = false;
    return SUCCESS;
}

/* The stream's GPU writes to the peer, or reads from it; staged, both work as long. */
CUresult peer_copy_run(const struct copy *copy, double *cost_ns)
{
    int own = current_index(), peer = copy->write ? copy->to_device : copy->from_device;
    bool direct = access[own][peer];
    double rate = direct ? copy->write ? RATE(peer_write_bytes_per_second)
                                       : RATE(peer_read_bytes_per_second)
                  : copy->write ? RATE(staged_write_bytes_per_second)
                                : RATE(staged_read_bytes_per_second);
    int64_t corrupt = direct ? settings.corrupt_peer_byte : settings.corrupt_staged_byte;
    *cost_ns = (double)(direct ? settings.peer_gpu_ns : settings.staged_gpu_ns)
               + 1e9 * (double)copy->size / rate;
    CUresult code = memory_copy(copy->target, copy->source, copy->size);
    if (!code && corrupt >= 0 && (size_t)corrupt < copy->size)
        memory_spoil(copy->target + (uint64_t)corrupt);
    if (!code)
        ledger_work_on(peer, *cost_ns, false);
    return code;
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                                  CUcontext source_context, size_t size, CUstream stream)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    int to = device_of(target_context), from = device_of(source_context), own = current_index();
    REQUIRE(to >= 0 && from >= 0, INVALID_CONTEXT);
    REQUIRE(memory_device(target, size) == to && memory_device(source, size) == from, INVALID_VALUE);
    REQUIRE(stream_device(stream) == own && (own == to || own == from) && to != from,
            INVALID_HANDLE);
    return copy_submit(start, stream, false,
                       (struct copy){.target = target, .source = source, .size = size,
                                     .peer = true, .write = own == from,
                                     .to_device = to, .from_device = from});
}
