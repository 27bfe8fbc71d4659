/* Allocations and copies of the stand-in libcuda.so.1; the bytes themselves are in cuda_memory.c. */
#include "cuda_api.h"

#include <stdlib.h>

struct pinned { struct pinned *next; void *start; size_t size; };

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
    return memory_allocate(current_index(), size, address);
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
    *block = (struct pinned){pinned, start, size};
    pinned = block;
    pinned_bytes += size;
    *address = start;
    return SUCCESS;
}

EXPORT CUresult cuMemFreeHost(void *address)
{
    ENTER(CONTEXT);
    for (struct pinned **link = &pinned; *link; link = &(*link)->next)
        if ((*link)->start == address) {
            struct pinned *block = *link;
            *link = block->next;
            pinned_bytes -= block->size;
            free(block->start);
            free(block);
            return SUCCESS;
        }
    return INVALID_VALUE;
}

static CUresult copy_in(CUdeviceptr target, const void *source, size_t size, CUstream stream)
{
    REQUIRE(source || !size, INVALID_VALUE);
    double *clock = clock_of(stream);
    REQUIRE(clock, INVALID_HANDLE);
    REQUIRE(size, SUCCESS);
    *clock += 1e9 * size / settings.h2d_bytes_per_second;
    return memory_write(target, source, size);
}

static CUresult copy_out(void *target, CUdeviceptr source, size_t size, CUstream stream)
{
    REQUIRE(target || !size, INVALID_VALUE);
    double *clock = clock_of(stream);
    REQUIRE(clock, INVALID_HANDLE);
    REQUIRE(size, SUCCESS);
    *clock += 1e9 * size / settings.d2h_bytes_per_second;
    return memory_read(source, target, size);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t size)
{
    ENTER(CONTEXT);
    return copy_in(target, source, size, NULL);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t size)
{
    ENTER(CONTEXT);
    return copy_out(target, source, size, NULL);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t size,
                                     CUstream stream)
{
    ENTER(CONTEXT);
    return copy_in(target, source, size, stream);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t size, CUstream stream)
{
    ENTER(CONTEXT);
    return copy_out(target, source, size, stream);
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count)
{
    ENTER(CONTEXT);
    current()->null_stream_ns += 1e9 * 4 * count / settings.bytes_per_second;
    return memory_fill(address, value, count);
}
