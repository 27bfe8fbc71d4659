/* A stand-in for libcuda.so.1: the driver API that gpud's probes use, on a machine with no GPU.
 *
 * Results are computed (cuda_kernels.c). Durations are not: each stream has a virtual clock that
 * kernels and copies advance by work / rate, and events read that clock, so every throughput is
 * known exactly. Only launch_ns, first_launch_ns, sync_ns, init_ns and module_load_ns take real
 * time. Like the probe child it serves, it is meant for one thread at a time. Keys: cuda_settings.c.
 */
#define _GNU_SOURCE
#include "cuda_objects.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum level { ALWAYS, INITIALIZED, CONTEXT };

static bool initialized, forked, launched;
static _Thread_local uint64_t current_context;
static uint64_t context_serial;

/* The device whose primary context is current on this thread, else NULL. */
static struct device *current(void)
{
    for (int i = 0; current_context && i < settings.devices; i++)
        if (settings.device[i].context == current_context)
            return &settings.device[i];
    return NULL;
}

static int current_index(void)
{
    return (int)(current() - settings.device);
}

static CUresult enter(struct script_call *call, const char *function, enum level level)
{
    CUresult code = script_enter(call, function);
    if (code || level == ALWAYS)
        return code;
    if (!initialized || forked)
        return NOT_INITIALIZED;
    if (level == INITIALIZED)
        return SUCCESS;
    return current() ? current()->sticky : INVALID_CONTEXT;
}

#define ENTER(level)                                                                              \
    static struct script_call call;                                                               \
    CUresult entered = enter(&call, __func__, level);                                             \
    if (entered)                                                                                  \
    return entered

#define REQUIRE(condition, code)                                                                  \
    if (!(condition))                                                                             \
    return code

#define DEVICE(index) REQUIRE((index) >= 0 && (index) < settings.devices, INVALID_DEVICE)

static void after_fork(void)
{
    forked = true;
}

EXPORT CUresult cuInit(unsigned flags)
{
    ENTER(ALWAYS);
    REQUIRE(!flags, INVALID_VALUE);
    REQUIRE(!forked, NOT_INITIALIZED);
    REQUIRE(settings.devices, NO_DEVICE);
    spin(now_ns(), settings.init_ns);
    if (!initialized)
        pthread_atfork(NULL, NULL, after_fork);
    initialized = true;
    return SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    ENTER(ALWAYS);
    REQUIRE(version, INVALID_VALUE);
    *version = settings.driver_version;
    return SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **text)
{
    ENTER(ALWAYS);
    REQUIRE(text, INVALID_VALUE);
    *text = error_name(error);
    return *text ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
    ENTER(ALWAYS);
    REQUIRE(text, INVALID_VALUE);
    *text = error_text(error);
    return *text ? SUCCESS : INVALID_VALUE;
}

/* Devices */

EXPORT CUresult cuDeviceGetCount(int *count)
{
    ENTER(INITIALIZED);
    REQUIRE(count, INVALID_VALUE);
    *count = settings.devices;
    return SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(INITIALIZED);
    REQUIRE(device, INVALID_VALUE);
    DEVICE(ordinal);
    *device = ordinal;
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    ENTER(INITIALIZED);
    REQUIRE(name && size > 0, INVALID_VALUE);
    DEVICE(device);
    snprintf(name, size, "%s", settings.device[device].name);
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    ENTER(INITIALIZED);
    REQUIRE(uuid, INVALID_VALUE);
    DEVICE(device);
    memcpy(uuid->bytes, settings.device[device].uuid, sizeof uuid->bytes);
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
    ENTER(INITIALIZED);
    DEVICE(device);
    const char *bus_id = settings.device[device].pci_bus_id;
    REQUIRE(text && size > (int)strlen(bus_id), INVALID_VALUE);
    strcpy(text, bus_id);
    return SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    ENTER(INITIALIZED);
    REQUIRE(bytes, INVALID_VALUE);
    DEVICE(device);
    *bytes = settings.device[device].total_mem;
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice index)
{
    ENTER(INITIALIZED);
    REQUIRE(value, INVALID_VALUE);
    DEVICE(index);
    const struct device *device = &settings.device[index];
    unsigned domain = 0, bus = 0, slot = 0;
    sscanf(device->pci_bus_id, "%x:%x:%x", &domain, &bus, &slot);
    const struct { int attribute, value; } known[] = {
        {1, 1024},                      /* MAX_THREADS_PER_BLOCK */
        {8, 49152},                     /* MAX_SHARED_MEMORY_PER_BLOCK */
        {10, 32},                       /* WARP_SIZE */
        {13, device->clock_khz},        /* CLOCK_RATE */
        {16, device->sm_count},         /* MULTIPROCESSOR_COUNT */
        {17, 1},                        /* KERNEL_EXEC_TIMEOUT: Windows' watchdog applies */
        {18, 0},                        /* INTEGRATED */
        {19, 1},                        /* CAN_MAP_HOST_MEMORY */
        {20, 0},                        /* COMPUTE_MODE */
        {31, 1},                        /* CONCURRENT_KERNELS */
        {32, 0},                        /* ECC_ENABLED */
        {33, (int)bus},                 /* PCI_BUS_ID */
        {34, (int)slot},                /* PCI_DEVICE_ID */
        {35, 0},                        /* TCC_DRIVER */
        {36, device->memory_clock_khz}, /* MEMORY_CLOCK_RATE */
        {37, device->memory_bus_bits},  /* GLOBAL_MEMORY_BUS_WIDTH */
        {38, device->l2_bytes},         /* L2_CACHE_SIZE */
        {39, 1536},                     /* MAX_THREADS_PER_MULTIPROCESSOR */
        {40, 1},                        /* ASYNC_ENGINE_COUNT */
        {41, 1},                        /* UNIFIED_ADDRESSING */
        {50, (int)domain},              /* PCI_DOMAIN_ID */
        {75, device->cc_major},         /* COMPUTE_CAPABILITY_MAJOR */
        {76, device->cc_minor},         /* COMPUTE_CAPABILITY_MINOR */
        {83, 1},                        /* MANAGED_MEMORY */
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].attribute == attribute) {
            *value = known[i].value;
            return SUCCESS;
        }
    return INVALID_VALUE;
}

/* Contexts: only the primary one of each device */

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
    ENTER(INITIALIZED);
    DEVICE(device);
    unsigned schedule = flags & 7;
    REQUIRE(flags < 32 && (schedule & (schedule - 1)) == 0, INVALID_VALUE);
    settings.device[device].context_flags = flags;
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice index)
{
    ENTER(INITIALIZED);
    REQUIRE(context, INVALID_VALUE);
    DEVICE(index);
    struct device *device = &settings.device[index];
    if (!device->context_users++)
        device->context = UINT64_C(9) << 44 | ++context_serial;
    *context = (CUcontext)(uintptr_t)device->context;
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice index)
{
    ENTER(INITIALIZED);
    DEVICE(index);
    struct device *device = &settings.device[index];
    REQUIRE(device->context_users, INVALID_CONTEXT);
    if (!--device->context_users) {
        device->context = 0;
        object_free_device(index);
        memory_free_device(index);
    }
    return SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER(INITIALIZED);
    uint64_t before = current_context;
    current_context = (uintptr_t)context;
    if (context && !current()) {
        current_context = before;
        return INVALID_CONTEXT;
    }
    return SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
    ENTER(CONTEXT);
    return SUCCESS;
}

/* Modules */

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

/* Streams and events */

/* The virtual clock of a stream; NULL for a bad handle. 0, 1 and 2 are the default streams. */
static double *clock_of(CUstream handle)
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

/* Memory */

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
