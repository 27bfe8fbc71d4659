/* Modules, streams, events and launches of the stand-in libcuda.so.1. */
#define _GNU_SOURCE
#include "cuda_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool launched;

enum { JIT_WALL_TIME = 2, JIT_INFO_BUFFER, JIT_INFO_SIZE, JIT_ERROR_BUFFER, JIT_ERROR_SIZE };

/* The value slot of one JIT option, else NULL. */
static void **option(unsigned count, const int *options, void **values, int wanted)
{
    for (unsigned i = 0; i < count; i++)
        if (options[i] == wanted)
            return &values[i];
    return NULL;
}

/* Put text into the caller's log buffer and the number of bytes used into its size option. */
static void jit_log(void **buffer, void **size, const char *text)
{
    unsigned used = 0;
    if (buffer && *buffer && size && (uintptr_t)*size) {
        snprintf(*buffer, (uintptr_t)*size, "%s", text);
        used = (unsigned)strlen(*buffer);
    }
    if (size)
        memcpy(size, &used, sizeof used);
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                                   int *options, void **values)
{
    ENTER(CONTEXT);
    REQUIRE(module && image && (!count || (options && values)), INVALID_VALUE);
    char message[256] = "";
    int64_t start = now_ns();
    CUresult code = ptx_check(image, current(), message, sizeof message);
    spin(start, settings.module_load_ns);
    void **wall = option(count, options, values, JIT_WALL_TIME);
    if (wall)
        memcpy(wall, &(float){(float)settings.module_load_ns / 1e6f}, sizeof(float));
    jit_log(option(count, options, values, JIT_INFO_BUFFER),
            option(count, options, values, JIT_INFO_SIZE), "");
    jit_log(option(count, options, values, JIT_ERROR_BUFFER),
            option(count, options, values, JIT_ERROR_SIZE), message);
    REQUIRE(!code, code);
    struct object *object = object_new(MODULE, current_index());
    object->ptx = strdup(image);
    *module = (CUmodule)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuModuleUnload(CUmodule handle)
{
    ENTER(CONTEXT);
    struct object *module = object_find(MODULE, handle);
    REQUIRE(module, INVALID_HANDLE);
    object_free(module);
    return SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle, const char *name)
{
    ENTER(CONTEXT);
    REQUIRE(function && name, INVALID_VALUE);
    struct object *module = object_find(MODULE, handle);
    REQUIRE(module, INVALID_HANDLE);
    REQUIRE(ptx_has_entry(module->ptx, name), NOT_FOUND);
    struct object *object = object_new(FUNCTION, current_index());
    object->module = module->handle;
    object->kernel = kernel_named(name);
    *function = (CUfunction)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuModuleGetLoadingMode(int *mode)
{
    ENTER(INITIALIZED);
    REQUIRE(mode, INVALID_VALUE);
    /* The driver's own variable; lazy is its default on Linux since CUDA 12.2. */
    const char *wanted = getenv("CUDA_MODULE_LOADING");
    bool lazy = wanted && *wanted ? !strcmp(wanted, "LAZY") : settings.driver_version >= 12020;
    *mode = lazy ? 2 : 1;
    return SUCCESS;
}

double *clock_of(CUstream handle)
{
    if ((uintptr_t)handle <= 2)
        return &current()->null_stream_ns;
    struct object *stream = object_find(STREAM, handle);
    return stream ? &stream->now_ns : NULL;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    ENTER(CONTEXT);
    REQUIRE(stream && flags <= 1, INVALID_VALUE);
    *stream = (CUstream)(uintptr_t)object_new(STREAM, current_index())->handle;
    return SUCCESS;
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
    ENTER(CONTEXT);
    REQUIRE(clock_of(stream), INVALID_HANDLE);
    return SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    int64_t start = settings.sync_ns ? now_ns() : 0;
    ENTER(CONTEXT);
    REQUIRE(clock_of(stream), INVALID_HANDLE);
    if (settings.sync_ns)
        spin(start, settings.sync_ns);
    return SUCCESS;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream handle)
{
    ENTER(CONTEXT);
    struct object *stream = object_find(STREAM, handle);
    REQUIRE(stream, INVALID_HANDLE);
    object_free(stream);
    return SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    ENTER(CONTEXT);
    REQUIRE(event && flags <= 7, INVALID_VALUE);
    struct object *object = object_new(EVENT, current_index());
    object->timing = !(flags & 2);
    *event = (CUevent)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream)
{
    ENTER(CONTEXT);
    struct object *event = object_find(EVENT, handle);
    REQUIRE(event && clock_of(stream), INVALID_HANDLE);
    event->recorded = true;
    event->now_ns = *clock_of(stream);
    return SUCCESS;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    ENTER(CONTEXT);
    REQUIRE(object_find(EVENT, event), INVALID_HANDLE);
    return SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    ENTER(CONTEXT);
    REQUIRE(milliseconds, INVALID_VALUE);
    const struct object *first = object_find(EVENT, start), *last = object_find(EVENT, end);
    REQUIRE(first && first->recorded && first->timing, INVALID_HANDLE);
    REQUIRE(last && last->recorded && last->timing, INVALID_HANDLE);
    *milliseconds = (float)((last->now_ns - first->now_ns) / 1e6);
    return SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent handle)
{
    ENTER(CONTEXT);
    struct object *event = object_find(EVENT, handle);
    REQUIRE(event, INVALID_HANDLE);
    object_free(event);
    return SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared_bytes, CUstream stream, void **params, void **extra)
{
    int64_t duration = launched ? settings.launch_ns : settings.first_launch_ns;
    if (!launched && !duration)
        duration = settings.launch_ns;
    int64_t start = duration ? now_ns() : 0;
    ENTER(CONTEXT);
    const struct object *function = object_find(FUNCTION, handle);
    REQUIRE(function && clock_of(stream), INVALID_HANDLE);
    REQUIRE(function->kernel && !extra, NOT_SUPPORTED);
    REQUIRE(object_find(MODULE, (void *)(uintptr_t)function->module), INVALID_HANDLE);
    REQUIRE(params || !function->kernel->has_parameters, INVALID_VALUE);
    uint64_t threads = (uint64_t)block_x * block_y * block_z;
    REQUIRE(grid_x && grid_y && grid_z && grid_x < 1u << 31 && grid_y < 1u << 16, INVALID_VALUE);
    REQUIRE(grid_z < 1u << 16 && threads && threads <= 1024, INVALID_VALUE);
    REQUIRE(shared_bytes <= 49152, INVALID_VALUE);
    struct launch launch = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, params};
    double cost_ns = 0;
    CUresult code = function->kernel->run(function->kernel, &launch, &cost_ns);
    if (code == ILLEGAL_ADDRESS) /* the launch itself succeeds; everything after it fails */
        current()->sticky = code;
    else if (code)
        return code;
    *clock_of(stream) += cost_ns;
    launched = true;
    if (duration)
        spin(start, duration);
    return SUCCESS;
}
