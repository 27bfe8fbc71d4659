/* The CUDA driver API as the reference program calls it: loaded at run time, every code checked.
 *
 * Source: cuda.h, plain exported symbols. Any code but 0 ends the program with the function, the
 * code and the driver's own words on stderr; only what is asked for with `optional_` may be absent.
 */
#ifndef DRIVER_H
#define DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
typedef struct handle *CUhandle; /* contexts, modules, functions, streams, events, graphs */

enum { CU_NOT_FOUND = 500, CU_NOT_READY = 600, CU_EVENT_BLOCKING_SYNC = 1 };

#define DRIVER_FUNCTIONS(X)                                                                       \
    X(cuInit, (unsigned))                                                                         \
    X(cuDriverGetVersion, (int *))                                                                \
    X(cuGetErrorName, (CUresult, const char **))                                                  \
    X(cuGetErrorString, (CUresult, const char **))                                                \
    X(cuDeviceGetCount, (int *))                                                                  \
    X(cuDeviceGet, (int *, int))                                                                  \
    X(cuDeviceGetName, (char *, int, int))                                                        \
    X(cuDeviceGetUuid, (unsigned char *, int))                                                    \
    X(cuDeviceGetAttribute, (int *, int, int))                                                    \
    X(cuDevicePrimaryCtxSetFlags_v2, (int, unsigned))                                             \
    X(cuDevicePrimaryCtxRetain, (CUhandle *, int))                                                \
    X(cuDevicePrimaryCtxRelease_v2, (int))                                                        \
    X(cuCtxSetCurrent, (CUhandle))                                                                \
    X(cuCtxSynchronize, (void))                                                                   \
    X(cuModuleLoadDataEx, (CUhandle *, const void *, unsigned, int *, void **))                   \
    X(cuModuleGetFunction, (CUhandle *, CUhandle, const char *))                                  \
    X(cuLaunchKernel, (CUhandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,      \
                       unsigned, CUhandle, void **, void **))                                     \
    X(cuStreamCreate, (CUhandle *, unsigned))                                                     \
    X(cuStreamSynchronize, (CUhandle))                                                            \
    X(cuStreamQuery, (CUhandle))                                                                  \
    X(cuEventCreate, (CUhandle *, unsigned))                                                      \
    X(cuEventRecord, (CUhandle, CUhandle))                                                        \
    X(cuEventSynchronize, (CUhandle))                                                             \
    X(cuEventElapsedTime, (float *, CUhandle, CUhandle))                                          \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                      \
    X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                     \
    X(cuMemFree_v2, (CUdeviceptr))                                                                \
    X(cuMemHostAlloc, (void **, size_t, unsigned))                                                \
    X(cuMemFreeHost, (void *))                                                                    \
    X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                       \
    X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                             \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUhandle))                        \
    X(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUhandle))                              \
    X(cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t))                                            \
    X(cuDeviceCanAccessPeer, (int *, int, int))                                                   \
    X(cuCtxEnablePeerAccess, (CUhandle, unsigned))                                                \
    X(cuMemcpyPeerAsync, (CUdeviceptr, CUhandle, CUdeviceptr, CUhandle, size_t, CUhandle))

struct kernel_node { /* CUDA_KERNEL_NODE_PARAMS_v1 of cuda.h */
    CUhandle function;
    unsigned grid[3], block[3], shared_bytes;
    void **parameters, **extra;
};

/* What an old driver or a library that only some modes need may lack; NULL then. */
#define OPTIONAL_FUNCTIONS(X)                                                                     \
    X(cuDeviceGetUuid_v2, (unsigned char *, int))                                                 \
    X(cuFuncSetAttribute, (CUhandle, int, int))                                                   \
    X(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUhandle))                         \
    X(cuStreamWaitEvent, (CUhandle, CUhandle, unsigned))                                          \
    X(cuGraphCreate, (CUhandle *, unsigned))                                                      \
    X(cuGraphAddKernelNode,                                                                       \
      (CUhandle *, CUhandle, const CUhandle *, size_t, const struct kernel_node *))               \
    X(cuGraphInstantiateWithFlags, (CUhandle *, CUhandle, unsigned long long))                    \
    X(cuGraphLaunch, (CUhandle, CUhandle))                                                        \
    X(cuGraphExecDestroy, (CUhandle))                                                             \
    X(cuGraphDestroy, (CUhandle))

#define FUNCTION_POINTER(name, types) CUresult(*name) types;
extern struct driver {
    DRIVER_FUNCTIONS(FUNCTION_POINTER)
    OPTIONAL_FUNCTIONS(FUNCTION_POINTER)
} cu;
#undef FUNCTION_POINTER

#define CHECK(function, ...) driver_check(cu.function(__VA_ARGS__), #function)
void driver_check(CUresult code, const char *function);

/* Say what is wrong on stderr and end with code 1. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

struct gpu { /* the one that was opened */
    char name[256], uuid[48], library[512];
    int ordinal, driver_version, major, minor, sm_count, l2_bytes;
    double peak_bytes_per_second; /* of its memory; 0 where the driver does not say */
    CUhandle context;
    CUhandle stream, second; /* two streams, for copies both ways at once */
    CUhandle first_event, last_event, fork, join;
};
extern struct gpu gpu;

struct peer { /* a second one, to copy to and from */
    int ordinal;
    CUhandle context;
    bool accessible; /* and the first one's memory from here */
};
extern struct peer peer;

/* Load the library and find the GPU by UUID ("" is the first in PCI order). */
void driver_find(const char *library, const char *uuid);
/* Make its primary context current with a spinning wait, and take streams and events. */
void driver_open(void);
void driver_close(void);
/* Make a context on a second GPU, which is not current; end it, and its memory with it. */
void driver_open_peer(const char *uuid);
void driver_close_peer(void);
/* Give both GPUs access to each other's memory; false where the driver grants none. */
bool driver_may_access_peer(void);

/* Kernels: every module of the command line is searched for PREFIX and the name. */
void kernels_load(const char *file);
extern const char *kernel_prefix;
CUhandle optional_kernel(const char *name); /* NULL where no module has it */
CUhandle kernel(const char *name);

CUdeviceptr device_memory(size_t size); /* given back by device_memory_free_all */
void device_memory_free_all(void);
void *pinned_memory(size_t size); /* NULL where the driver grants none */
void poison(CUdeviceptr address, size_t size); /* every word a NaN that no kernel writes */
void upload(CUdeviceptr to, const void *from, size_t size);
void download(void *to, CUdeviceptr from, size_t size);
void synchronize(void);

#define POISON 0x7fe5a5a5u

#endif
