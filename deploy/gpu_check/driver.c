#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CU_CTX_SCHED_*, CU_DEVICE_ATTRIBUTE_*, CU_JIT_* */
enum { SPIN = 1, SM_COUNT = 16, MEMORY_KHZ = 36, BUS_BITS = 37, L2_BYTES = 38, MAJOR = 75, MINOR = 76 };
enum { ERROR_LOG = 5, ERROR_LOG_SIZE = 6 };
enum { MOST_MODULES = 16, MOST_BUFFERS = 64 };

struct driver cu;
struct gpu gpu;
struct peer peer;
const char *kernel_prefix = "ref_";

static CUhandle modules[MOST_MODULES];
static int module_count;
static CUdeviceptr buffers[MOST_BUFFERS];
static int buffer_count;

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("reference: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void driver_check(CUresult code, const char *function)
{
    if (!code)
        return;
    const char *name = NULL, *text = NULL;
    cu.cuGetErrorName(code, &name);
    cu.cuGetErrorString(code, &text);
    fail("%s: %s (%d): %s", function, name ? name : "an error the driver cannot name", code,
         text ? text : "no explanation");
}

static void load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        fail("%s", dlerror());
#define REQUIRED(name, types)                                                                     \
    if (!(*(void **)&cu.name = dlsym(library, #name)))                                            \
        fail("%s does not define %s", path, #name);
#define OPTIONAL(name, types) *(void **)&cu.name = dlsym(library, #name);
    DRIVER_FUNCTIONS(REQUIRED)
    OPTIONAL_FUNCTIONS(OPTIONAL)
    Dl_info where;
    if (dladdr(*(void **)&cu.cuInit, &where) && where.dli_fname)
        path = where.dli_fname;
    snprintf(gpu.library, sizeof gpu.library, "%s", path);
}

static int attribute(int number)
{
    int value;
    CHECK(cuDeviceGetAttribute, &value, number, gpu.ordinal);
    return value;
}

/* The 32 digits, since MIG writes another word before them than a whole GPU does. */
static const char *digits(const char *uuid)
{
    const char *dash = strchr(uuid, '-');
    return dash && dash - uuid == 3 ? dash + 1 : uuid;
}

static bool found(const char *uuid, int index, int *ordinal, char *own)
{
    unsigned char raw[16];
    CHECK(cuDeviceGet, ordinal, index);
    if (cu.cuDeviceGetUuid_v2) /* of the MIG instance, where the GPU is divided */
        CHECK(cuDeviceGetUuid_v2, raw, *ordinal);
    else
        CHECK(cuDeviceGetUuid, raw, *ordinal);
    char *at = own + sprintf(own, "GPU-");
    for (int i = 0; i < 16; i++)
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", raw[i]);
    return !*uuid || !strcasecmp(digits(uuid), digits(own));
}

/* Find a GPU: its ordinal, and its UUID into `own`. */
static int find(const char *uuid, char *own)
{
    int count, index = 0, ordinal = 0;
    CHECK(cuDeviceGetCount, &count);
    while (index < count && !found(uuid, index, &ordinal, own))
        index++;
    if (index == count)
        fail("%s offers no GPU%s%s", gpu.library, *uuid ? " with the UUID " : "", uuid);
    return ordinal;
}

/* As NVIDIA states it: two words a clock. */
static double peak_of_memory(void)
{
    int khz, bits;
    if (cu.cuDeviceGetAttribute(&khz, MEMORY_KHZ, gpu.ordinal)
        || cu.cuDeviceGetAttribute(&bits, BUS_BITS, gpu.ordinal))
        return 0;
    return 2e3 * khz * bits / 8;
}

void driver_find(const char *library, const char *uuid)
{
    /* As gpud's child sets them: the same index is the same GPU, and no launch loads lazily. */
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    load(library);
    CHECK(cuInit, 0);
    CHECK(cuDriverGetVersion, &gpu.driver_version);
    gpu.ordinal = find(uuid, gpu.uuid);
    CHECK(cuDeviceGetName, gpu.name, sizeof gpu.name, gpu.ordinal);
    gpu.major = attribute(MAJOR);
    gpu.minor = attribute(MINOR);
    gpu.sm_count = attribute(SM_COUNT);
    gpu.l2_bytes = attribute(L2_BYTES);
    gpu.peak_bytes_per_second = peak_of_memory();
}

void driver_open(void)
{
    CHECK(cuDevicePrimaryCtxSetFlags_v2, gpu.ordinal, SPIN);
    CHECK(cuDevicePrimaryCtxRetain, &gpu.context, gpu.ordinal);
    CHECK(cuCtxSetCurrent, gpu.context);
    CHECK(cuStreamCreate, &gpu.stream, 0);
    CHECK(cuStreamCreate, &gpu.second, 0);
    CUhandle *events[] = {&gpu.first_event, &gpu.last_event, &gpu.fork, &gpu.join};
    for (int i = 0; i < 4; i++)
        CHECK(cuEventCreate, events[i], 0);
}

void driver_close(void)
{
    CHECK(cuCtxSynchronize); /* whatever went wrong late is said here */
    device_memory_free_all();
    CHECK(cuDevicePrimaryCtxRelease_v2, gpu.ordinal);
}

void driver_open_peer(const char *uuid)
{
    char own[sizeof gpu.uuid];
    peer.ordinal = find(uuid, own);
    CHECK(cuDevicePrimaryCtxRetain, &peer.context, peer.ordinal);
}

void driver_close_peer(void)
{
    CHECK(cuCtxSynchronize);
    CHECK(cuDevicePrimaryCtxRelease_v2, peer.ordinal);
    peer.accessible = false;
}

bool driver_may_access_peer(void)
{
    int there, back;
    CHECK(cuDeviceCanAccessPeer, &there, gpu.ordinal, peer.ordinal);
    CHECK(cuDeviceCanAccessPeer, &back, peer.ordinal, gpu.ordinal);
    if (!there || !back || peer.accessible)
        return peer.accessible;
    CHECK(cuCtxEnablePeerAccess, peer.context, 0);
    CHECK(cuCtxSetCurrent, peer.context);
    CHECK(cuCtxEnablePeerAccess, gpu.context, 0);
    CHECK(cuCtxSetCurrent, gpu.context);
    return peer.accessible = true;
}

void kernels_load(const char *file)
{
    if (module_count == MOST_MODULES)
        fail("more than %d modules", MOST_MODULES);
    FILE *stream = fopen(file, "rb");
    if (!stream || fseek(stream, 0, SEEK_END))
        fail("%s: cannot be read", file);
    long size = ftell(stream);
    rewind(stream);
    char *image = calloc((size_t)size + 1, 1); /* PTX must end with a NUL */
    if (!image || fread(image, 1, (size_t)size, stream) != (size_t)size)
        fail("%s: cannot be read", file);
    fclose(stream);
    char said[4096] = "";
    int options[] = {ERROR_LOG, ERROR_LOG_SIZE};
    void *values[] = {said, (void *)(uintptr_t)sizeof said};
    CUresult code = cu.cuModuleLoadDataEx(&modules[module_count], image, 2, options, values);
    if (code && *said)
        fprintf(stderr, "reference: %s: %s\n", file, said);
    driver_check(code, "cuModuleLoadDataEx");
    module_count++;
    free(image);
}

CUhandle optional_kernel(const char *name)
{
    char full[128];
    CUhandle function;
    snprintf(full, sizeof full, "%s%s", kernel_prefix, name);
    for (int i = 0; i < module_count; i++) {
        CUresult code = cu.cuModuleGetFunction(&function, modules[i], full);
        if (!code)
            return function;
        if (code != CU_NOT_FOUND)
            driver_check(code, "cuModuleGetFunction");
    }
    return NULL;
}

CUhandle kernel(const char *name)
{
    CUhandle function = optional_kernel(name);
    if (!function)
        fail("no module has a kernel %s%s", kernel_prefix, name);
    return function;
}

CUdeviceptr device_memory(size_t size)
{
    if (buffer_count == MOST_BUFFERS)
        fail("more than %d buffers", MOST_BUFFERS);
    CHECK(cuMemAlloc_v2, &buffers[buffer_count], size);
    return buffers[buffer_count++];
}

void device_memory_free_all(void)
{
    CHECK(cuCtxSynchronize);
    while (buffer_count)
        CHECK(cuMemFree_v2, buffers[--buffer_count]);
}

void *pinned_memory(size_t size)
{
    void *memory = NULL;
    return cu.cuMemHostAlloc(&memory, size, 0) ? NULL : memory;
}

void poison(CUdeviceptr address, size_t size)
{
    CHECK(cuMemsetD32_v2, address, POISON, size / 4);
    CHECK(cuCtxSynchronize); /* the stream of the kernels must not overtake the default one */
}

void upload(CUdeviceptr to, const void *from, size_t size)
{
    synchronize();
    CHECK(cuMemcpyHtoD_v2, to, from, size);
    CHECK(cuCtxSynchronize); /* a copy from pageable memory may return before its last piece */
}

void download(void *to, CUdeviceptr from, size_t size)
{
    synchronize();
    CHECK(cuMemcpyDtoH_v2, to, from, size);
}

void synchronize(void)
{
    CHECK(cuStreamSynchronize, gpu.stream);
    CHECK(cuStreamSynchronize, gpu.second);
}
