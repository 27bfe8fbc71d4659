/* A stand-in for libcuda.so.1: the driver API that gpud's probes use, on a machine with no GPU.
 *
 * Results are computed (cuda_kernels.c). Durations are not: each stream has a virtual clock that
 * kernels and copies advance by work / rate, and events read that clock, so every throughput is
 * known exactly. Only the keys that cuda_settings.c lists under real time take any. Like the probe
 * child it serves, it is meant for one thread at a time.
 *
 * This file has errors, devices and contexts; the others are named after what they have.
 */
#define _GNU_SOURCE
#include "libcuda.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static bool initialized, forked;
static _Thread_local uint64_t current_context;
static uint64_t context_serial;

struct device *current(void)
{
    for (int i = 0; current_context && i < settings.devices; i++)
        if (settings.device[i].context == current_context)
            return &settings.device[i];
    return NULL;
}

int current_index(void)
{
    return (int)(current() - settings.device);
}

CUresult enter(struct script_call *call, const char *function, enum level level)
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

static const struct error { CUresult code; const char *name, *text; } errors[] = {
#define ERROR(code, name, text) {code, #name, text},
#include "cuda_errors.def"
};

static const struct error *error_of(CUresult code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return &errors[i];
    return NULL;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **text)
{
    ENTER(ALWAYS);
    REQUIRE(text, INVALID_VALUE);
    const struct error *known = error_of(error);
    *text = known ? known->name : NULL;
    return known ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
    ENTER(ALWAYS);
    REQUIRE(text, INVALID_VALUE);
    const struct error *known = error_of(error);
    *text = known ? known->text : NULL;
    return known ? SUCCESS : INVALID_VALUE;
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
    const char *mig = settings.device[device].mig;
    snprintf(name, size, "%s%s%s", settings.device[device].name, *mig ? " MIG " : "", mig);
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

/* A slice of a GPU has a UUID of its own, which the older form of the question does not know. */
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice index)
{
    ENTER(INITIALIZED);
    REQUIRE(uuid, INVALID_VALUE);
    DEVICE(index);
    const struct device *device = &settings.device[index];
    memcpy(uuid->bytes, *device->mig ? device->mig_uuid : device->uuid, sizeof uuid->bytes);
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

enum { MPS_ENABLED = 133 }; /* in cuda.h from CUDA 12.3 on */

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice index)
{
    ENTER(INITIALIZED);
    REQUIRE(value, INVALID_VALUE);
    DEVICE(index);
    const struct device *device = &settings.device[index];
    const struct { int attribute, value; } known[] = {
        {13, device->clock_khz}, /* CLOCK_RATE */
        {16, device->sm_count}, /* MULTIPROCESSOR_COUNT */
        {36, device->memory_clock_khz}, /* MEMORY_CLOCK_RATE */
        {37, device->memory_bus_bits},  /* GLOBAL_MEMORY_BUS_WIDTH */
        {38, device->l2_bytes}, /* L2_CACHE_SIZE */
        {75, device->cc_major}, /* COMPUTE_CAPABILITY_MAJOR */
        {76, device->cc_minor}, /* COMPUTE_CAPABILITY_MINOR */
        {MPS_ENABLED, device->mps},
    };
    REQUIRE(attribute != MPS_ENABLED || settings.driver_version >= 12030, INVALID_VALUE);
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
    if (!device->context_users++) {
        device->context = UINT64_C(9) << 44 | ++context_serial;
        spin(now_ns(), settings.context_ns);
    }
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
        ledger_close(index);
        device->context = 0;
        peers_close(index);
        pinned_free_device(index);
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
    double streams_ns = object_latest_ns(current_index()), null_ns = current()->null_stream_ns;
    wait_until(streams_ns > null_ns ? streams_ns : null_ns);
    return SUCCESS;
}
