/* What the parts of the stand-in libcuda.so.1 share; script.h says how it is steered. */
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
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    NOT_SUPPORTED = 801,
};

struct rates { /* what work costs in virtual time; 0 where a device has none of its own */
    double kernel_ns, flops_per_second, tensor_flops_per_second, bytes_per_second;
    double fp64_flops_per_second, tf32_flops_per_second, bf16_flops_per_second,
        int8_operations_per_second;
    double h2d_bytes_per_second, d2h_bytes_per_second;
    double pageable_h2d_bytes_per_second, pageable_d2h_bytes_per_second; /* 0: as pinned */
    double d2d_bytes_per_second;                                         /* 0: bytes_per_second */
    double peer_write_bytes_per_second, peer_read_bytes_per_second;
    double staged_write_bytes_per_second, staged_read_bytes_per_second;
    double dram_load_ns, l2_load_ns;
};

struct device {
    char name[96];
    unsigned char uuid[16], mig_uuid[16];
    char mig[32]; /* profile, else empty */
    int mps;
    char pci_bus_id[32];
    int sm_count, cc_major, cc_minor, l2_bytes, clock_khz, memory_clock_khz, memory_bus_bits;
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
        copy_gpu_ns, peer_gpu_ns, staged_gpu_ns, query_ns, blocking_ns, peer_access;
    int64_t idle_launches, idle_launch_ns, warmup_kernels;
    double launch_ns_second, second_share, tail_ns, tail_share, warmup_factor;
    double sm_clock_hertz, clock_step, compiler_factor;
    int64_t timer_tick_ns, clock_step_kernels;
    struct rates rates;
    bool corrupt_copy, corrupt_device_copy;
    int64_t corrupt_peer_byte, corrupt_staged_byte; /* -1: none */
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
    int64_t corrupt_block;   /* of a product, row by row: every element of it; -1: none */
    bool stamps; /* it writes the clocks of its first block into its module's gpud_begins and gpud_ends */
    int registers, shared_bytes, local_bytes; /* as the driver's compiler makes it */
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
    const struct product *product; /* NULL: it is none, and its elements are floats */
};

CUresult memory_allocate(int device, uint64_t size, CUdeviceptr *address);
CUresult memory_free(CUdeviceptr address);
void memory_free_device(int device);
CUresult memory_write(CUdeviceptr address, const void *source, uint64_t size);
CUresult memory_read(CUdeviceptr address, void *target, uint64_t size);
CUresult memory_copy(CUdeviceptr target, CUdeviceptr source, uint64_t size);
void memory_spoil(CUdeviceptr address);
int memory_device(CUdeviceptr address, uint64_t size); /* -1: nobody's */
CUresult memory_fill(CUdeviceptr address, uint32_t value, uint64_t count);
/* What a kernel does; ILLEGAL_ADDRESS where an access leaves its allocation. */
CUresult memory_add(CUdeviceptr address, uint32_t delta);
CUresult memory_link(CUdeviceptr ring, uint64_t n, uint32_t factor, uint32_t step);
/* How many bytes the allocation has that the chain runs through. */
CUresult memory_chase(CUdeviceptr place, uint64_t loads, uint64_t *size);
CUresult memory_submit(const struct work *work, CUdeviceptr output);
/* The work whose output all of this memory is, not computed yet; else NULL. */
const struct work *memory_pending(CUdeviceptr address, uint64_t size);
const void *memory_bytes(CUdeviceptr address, uint64_t size); /* NULL: outside an allocation */

/* cuda_products.c: matrix products in every type, and the sums that check them. */
CUresult run_product(struct kernel *kernel, const struct launch *launch, double *cost_ns);
CUresult run_sums(struct kernel *kernel, const struct launch *launch, double *cost_ns);
/* Whether the script spoils an element of a result that was read from `first` on; spoil it. */
bool work_spoils(const struct work *work, uint64_t index, uint64_t first);
void work_spoil(const struct work *work, void *element);
CUresult refused(const struct kernel *kernel, const char *rule);
bool shape_is(const struct launch *launch, unsigned grid_x, unsigned grid_y, unsigned block_x,
              unsigned block_y);

#define PARAMETER(type, index) (*(const type *)launch->params[index])
const void *operand_bytes(const struct operand *operand);
/* A module's own memory, which is nobody's allocation; 0 where there is none left. */
CUdeviceptr memory_of_module(int device, uint64_t size);

/* cuda_ptx.c: as much of PTX as decides whether a driver takes it. */
CUresult ptx_check(const char *text, const struct device *device, char *message, size_t size);
bool ptx_has_entry(const char *text, const char *name);

/* cuda_cubin.c: as much of a compiled module as decides whether a GPU takes it. */
bool is_cubin(const void *image);
size_t cubin_size(const void *image);
int cubin_architecture(const void *image); /* 86 is sm_86 */
CUresult cubin_check(const void *image, const struct device *device, char *message, size_t size);

/* cuda_clock.c: what a kernel leaves in the memory of its module. */
#define ENDS_BYTES 32
#define BEGINS_BYTES 16 /* after the ends */
void stamp(CUdeviceptr stamps, double begin_ns, double cost_ns, double share);
double clock_share(void); /* of the next kernel: the clock waits at a lower step before it rises */
double compiled_slowdown(bool pinned);

/* cuda_objects.c: modules, functions, streams, events and graphs behind checked handles. */
struct nodes;

enum kind { MODULE = 1, FUNCTION, STREAM, EVENT, GRAPH, GRAPH_EXEC };

struct object {
    enum kind kind;
    int device;
    uint64_t handle;
    char *image;           /* MODULE: PTX, or a cubin of `size` bytes */
    size_t size;           /* MODULE: 0 for PTX */
    CUdeviceptr stamps;    /* MODULE */
    uint64_t module;       /* FUNCTION: its handle */
    struct kernel *kernel; /* FUNCTION; NULL where the stand-in cannot compute it */
    double now_ns;         /* STREAM: its virtual clock; EVENT: the moment it recorded */
    bool recorded, timing, blocking; /* EVENT */
    struct nodes *nodes;   /* GRAPH, GRAPH_EXEC */
};

struct object *object_new(enum kind kind, int device);
struct object *object_find(enum kind kind, const void *handle); /* NULL: stale or invented */
void object_free(struct object *object);
void object_free_device(int device);
double object_latest_ns(int device); /* of its streams' clocks */

/* cuda_graph.c */
void nodes_drop(struct object *object);

/* What every exported function begins with. */
enum level { ALWAYS, INITIALIZED, CONTEXT };

/* The device whose primary context is current on this thread, else NULL. */
struct device *current(void);
int current_index(void);

/* What work costs on the current device: its own figure, else the common one. */
#define RATE(name) (current()->rates.name ? current()->rates.name : settings.rates.name)

/* Do what the script says for one call, then check that the driver is in a state to take it. */
CUresult enter(struct script_call *call, const char *function, enum level level);

#define ENTER(level)                                                                              \
    static struct script_call call;                                                               \
    __attribute__((cleanup(script_leave))) struct script_call *here = &call;                      \
    CUresult entered = enter(here, __func__, level);                                              \
    if (entered)                                                                                  \
    return entered

#define REQUIRE(condition, code)                                                                  \
    if (!(condition))                                                                             \
    return code

/* cuda_settings.c, cuda_devices.c: one line of the script; false where the field is unknown. */
bool rates_line(const char *key, const char *field, const char *value, struct rates *rates);
bool device_line(const char *key, const char *field, struct device *device, char *value);

/* The virtual clock of a stream; NULL for a bad handle. 0, 1 and 2 are the default streams. */
double *clock_of(CUstream handle);
int stream_device(CUstream handle); /* -1 for a bad handle */

struct copy { /* the side that is not device memory is NULL or 0 */
    CUdeviceptr target, source;
    void *to;
    const void *from;
    size_t size;
    bool peer, write; /* between two GPUs; from the stream's to the other one */
    int to_device, from_device;
};

struct operation { /* one piece of work for a stream: a launch where it has a kernel, else a copy */
    struct kernel *kernel;
    CUdeviceptr stamps; /* of the kernel's module */
    bool pinned;        /* not compiled by the driver */
    unsigned grid[3], block[3];
    uint64_t values[MAX_PARAMETERS];
    struct copy copy;
};

/* cuda_launch.c: check a launch and write it down; do work that the GPU gets at `ready_ns`, which
 * advances the stream's clock. */
CUresult kernel_operation(CUfunction function, const unsigned grid[3], const unsigned block[3],
                          unsigned shared_bytes, void **params, void **extra,
                          struct operation *operation);
CUresult submit(CUstream stream, const struct operation *operation, int64_t ready_ns);

/* cuda_copies.c: move the bytes, and give the cost of the copy in virtual ns. */
CUresult copy_run(const struct copy *copy, double *cost_ns);
/* Submit a copy that began at `start`; a synchronous one does not return before the device. */
CUresult copy_submit(int64_t start, CUstream stream, bool synchronous, struct copy copy);
void pinned_free_device(int device);

/* cuda_peers.c: the same between two GPUs, each of which is busy as long. */
CUresult peer_copy_run(const struct copy *copy, double *cost_ns);
void peers_close(int device);

/* cuda_streams.c: with a time line, work begins when the GPU has it and not before, and who waits for
 * it waits. */
void clock_reaches(double *clock, int64_t ready_ns);
void wait_until(double ns);
bool is_done(double ns);

/* cuda_pace.c: the real nanoseconds of the next launch, or of the next one of a graph; how many
 * times longer the next kernel. */
int64_t launch_duration(void);
int64_t graph_duration(size_t nodes);
double kernel_slowdown(void);

/* The same: processes scatter from now on as `noise` in the script says. */
void noise_open(int64_t seed, double sigma, const char *path);

/* cuda_ledger.c: what the current context, or the one of `device`, has used. */
void ledger_open(const char *path);
int64_t ledger_compute(void);
void ledger_computed(const int64_t *begun);
/* The rest of the function is the GPU's own work: the processor's time for it is noted. */
#define COMPUTING                                                                                 \
    __attribute__((cleanup(ledger_computed), unused)) const int64_t begun = ledger_compute()
void ledger_work(double cost_ns, bool is_kernel);
void ledger_work_on(int device, double cost_ns, bool is_kernel);
void ledger_memory(void);
void ledger_pinned(int device, int64_t change);
void ledger_close(int device);

#endif
