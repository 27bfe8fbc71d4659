/* Types shared by the parts of the stand-in libcuda.so.1; script.h says how it is steered. */
#ifndef LIBCUDA_H
#define LIBCUDA_H

#include "script.h"

#include <stddef.h>

#define MAX_DEVICES 16

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct handle *CUcontext, *CUmodule, *CUfunction, *CUstream, *CUevent, *CUgraph,
    *CUgraphNode, *CUgraphExec; /* never followed */
typedef struct { unsigned char bytes[16]; } CUuuid;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    NOT_SUPPORTED = 801,
};

struct rates { /* what work costs in virtual time; 0 where a device has none of its own */
    double kernel_ns, flops_per_second, tensor_flops_per_second, bytes_per_second;
    double h2d_bytes_per_second, d2h_bytes_per_second;
    double pageable_h2d_bytes_per_second, pageable_d2h_bytes_per_second; /* 0: as pinned */
    double d2d_bytes_per_second;                                         /* 0: bytes_per_second */
};

struct device {
    char name[96];
    unsigned char uuid[16], mig_uuid[16];
    char mig[32]; /* profile, else empty */
    int mps;
    char pci_bus_id[32];
    int sm_count, cc_major, cc_minor, l2_bytes;
    uint64_t total_mem, free_mem; /* free before anything is allocated here */
    int64_t launch_ns; /* 0: as every other */
    struct rates rates;
    uint64_t allocated;
    int context_users; /* of its primary context */
    uint64_t context;  /* handle, or 0 */
    unsigned context_flags;
    double null_stream_ns; /* virtual time */
    CUresult sticky;       /* an error inside a kernel spoils the context */
};

extern struct settings {
    int driver_version, devices;
    int64_t launch_ns, first_launch_ns, sync_ns, init_ns, context_ns, module_load_ns, pinned_limit;
    int64_t graph_launch_ns, graph_node_ns, copy_ns, event_ns, event_gpu_ns,
        copy_gpu_ns;
    int64_t idle_launches, idle_launch_ns, warmup_kernels;
    double launch_ns_second, second_share, tail_ns, tail_share, warmup_factor;
    struct rates rates;
    bool corrupt_copy, corrupt_device_copy;
    int64_t time_line; /* below 0: where the clock is virtual */
    struct device device[MAX_DEVICES];
} settings;

/* cuda_kernels.c: the kernels the stand-in can compute, and what each costs. */
struct launch {
    unsigned grid[3], block[3];
    void **params;
};

#define MAX_PARAMETERS 5

struct kernel {
    const char *name;
    const char *parameters; /* bytes of each, one digit a parameter */
    bool corrupt;
    int64_t corrupt_element; /* -1: the first element of whatever is read back */
    /* Check the launch, record or do the work, and give its virtual cost in nanoseconds. */
    CUresult (*run)(struct kernel *kernel, const struct launch *launch, double *cost_ns);
};

struct kernel *kernel_named(const char *name); /* NULL where the stand-in knows none */

/* cuda_memory.c: bounds-checked device memory and results that are computed when they are read. */
struct buffer; /* bytes shared between a region and the pending work that still reads them */

struct operand { /* device memory as it was at launch */
    CUdeviceptr address;
    uint64_t size; /* 0 where the kernel has no such operand */
    const struct buffer *buffer; /* this and the offset are filled in by memory_submit */
    uint64_t offset;
};

struct work { /* one launch whose output is computed element by element */
    struct kernel *kernel;
    uint64_t elements, element_size;
    struct operand in[2];
    double scalar;
    uint64_t n;
    void (*element)(const struct work *work, uint64_t index, void *out);
};

CUresult memory_allocate(int device, uint64_t size, CUdeviceptr *address);
CUresult memory_free(CUdeviceptr address);
void memory_free_device(int device);
CUresult memory_write(CUdeviceptr address, const void *source, uint64_t size);
CUresult memory_read(CUdeviceptr address, void *target, uint64_t size);
CUresult memory_copy(CUdeviceptr target, CUdeviceptr source, uint64_t size);
CUresult memory_fill(CUdeviceptr address, uint32_t value, uint64_t count);
/* What a kernel does; ILLEGAL_ADDRESS where an access leaves its allocation. */
CUresult memory_add(CUdeviceptr address, uint32_t delta);
CUresult memory_submit(const struct work *work, CUdeviceptr output);
const void *operand_bytes(const struct operand *operand);

/* cuda_ptx.c: as much of PTX as decides whether a driver takes it. */
CUresult ptx_check(const char *text, const struct device *device, char *message, size_t size);
bool ptx_has_entry(const char *text, const char *name);

/* cuda_errors.c */
const char *error_name(CUresult code); /* NULL where unknown */
const char *error_text(CUresult code);

#endif
