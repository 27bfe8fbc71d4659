/* Allocations and copies of the stand-in libcuda.so.1; the bytes themselves are in cuda_memory.c. */
#include "libcuda.h"

#include <stdlib.h>

struct pinned { struct pinned *next; void *start; size_t size; int device; };

static struct pinned *pinned;
static uint64_t pinned_bytes;

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    ENTER(CONTEXT);
    REQUIRE(free_bytes && total_bytes, INVALID_VALUE);
    *free_bytes = current()->free_mem - current()->allocated;
    *total_bytes = current()->total_mem;
    return SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    ENTER(CONTEXT);
    REQUIRE(address, INVALID_VALUE);
    CUresult code = memory_allocate(current_index(), size, address);
    ledger_memory();
    return code;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER(CONTEXT);
    return memory_free(address);
}

EXPORT CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags)
{
    ENTER(CONTEXT);
    REQUIRE(address && size && flags <= 7, INVALID_VALUE);
    REQUIRE(pinned_bytes + size <= (uint64_t)settings.pinned_limit, OUT_OF_MEMORY);
    struct pinned *block = malloc(sizeof *block);
    void *start = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (!block || !start) {
        free(block);
        free(start);
        return OUT_OF_MEMORY;
    }
    *block = (struct pinned){pinned, start, size, current_index()};
    pinned = block;
    pinned_bytes += size;
    ledger_pinned(block->device, (int64_t)size);
    *address = start;
    return SUCCESS;
}

static void pinned_free(struct pinned **link)
{
    struct pinned *block = *link;
    *link = block->next;
    pinned_bytes -= block->size;
    ledger_pinned(block->device, -(int64_t)block->size);
    free(block->start);
    free(block);
}

void pinned_free_device(int device)
{
    for (struct pinned **link = &pinned; *link;)
        if ((*link)->device == device)
            pinned_free(link);
        else
            link = &(*link)->next;
}

EXPORT CUresult cuMemFreeHost(void *address)
{
    ENTER(CONTEXT);
    for (struct pinned **link = &pinned; *link; link = &(*link)->next)
        if ((*link)->start == address) {
            pinned_free(link);
            return SUCCESS;
        }
    return INVALID_VALUE;
}

static bool is_pinned(const void *start, size_t size)
{
    uintptr_t at = (uintptr_t)start;
    for (const struct pinned *block = pinned; block; block = block->next) {
        uintptr_t first = (uintptr_t)block->start;
        if (at >= first && at - first <= block->size && size <= block->size - (at - first))
            return true;
    }
    return false;
}

/* Bytes per second between the host and the device; the driver stages what is not page-locked. */
static double host_rate(const void *host, size_t size, double pinned_rate, double pageable_rate)
{
    return pageable_rate && !is_pinned(host, size) ? pageable_rate : pinned_rate;
}

CUresult copy_run(const struct copy *copy, double *cost_ns)
{
    double bytes = (double)copy->size, rate;
    CUresult code;
    if (copy->peer)
        return peer_copy_run(copy, cost_ns);
    if (copy->from) {
        rate = host_rate(copy->from, copy->size, RATE(h2d_bytes_per_second),
                         RATE(pageable_h2d_bytes_per_second));
        code = memory_write(copy->target, copy->from, copy->size);
    } else if (copy->to) {
        rate = host_rate(copy->to, copy->size, RATE(d2h_bytes_per_second),
                         RATE(pageable_d2h_bytes_per_second));
        code = memory_read(copy->source, copy->to, copy->size);
    } else {
        rate = RATE(d2d_bytes_per_second) ? RATE(d2d_bytes_per_second) : RATE(bytes_per_second);
        bytes *= 2; /* read and written */
        code = memory_copy(copy->target, copy->source, copy->size);
    }
    *cost_ns = (double)settings.copy_gpu_ns + 1e9 * bytes / rate;
    return code;
}

CUresult copy_submit(int64_t start, CUstream stream, bool synchronous, struct copy copy)
{
    REQUIRE(clock_of(stream), INVALID_HANDLE);
    REQUIRE(copy.size, SUCCESS);
    CUresult code = submit(stream, &(struct operation){.copy = copy}, start + settings.copy_ns);
    if (!code && settings.copy_ns)
        spin(start, settings.copy_ns);
    if (synchronous)
        wait_until(*clock_of(stream));
    return code;
}

#define COPY(stream, synchronous, ...)                                                            \
    copy_submit(start, stream, synchronous, (struct copy){.size = size, __VA_ARGS__})

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t size)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    REQUIRE(source || !size, INVALID_VALUE);
    return COPY(NULL, true, .target = target, .from = source);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t size)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    REQUIRE(target || !size, INVALID_VALUE);
    return COPY(NULL, true, .to = target, .source = source);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t size,
                                     CUstream stream)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    REQUIRE(source || !size, INVALID_VALUE);
    return COPY(stream, false, .target = target, .from = source);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t size, CUstream stream)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    REQUIRE(target || !size, INVALID_VALUE);
    return COPY(stream, false, .to = target, .source = source);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size,
                                     CUstream stream)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    return COPY(stream, false, .target = target, .source = source);
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count)
{
    ENTER(CONTEXT);
    int64_t start = now_ns();
    double cost_ns = 1e9 * 4 * (double)count / RATE(bytes_per_second);
    CUresult code = memory_fill(address, value, count);
    REQUIRE(!code, code);
    clock_reaches(&current()->null_stream_ns, start);
    current()->null_stream_ns += cost_ns;
    ledger_work(cost_ns, false);
    return SUCCESS;
}
