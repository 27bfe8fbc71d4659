/* What every exported function of the stand-in libcuda.so.1 begins with. */
#ifndef CUDA_API_H
#define CUDA_API_H

#include "cuda_objects.h"

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

/* A process that was forked after cuInit has no driver, and nothing to account for. */
bool is_forked(void);

/* cuda_settings.c, cuda_devices.c: one line of the script; false where the field is unknown. */
bool rates_line(const char *key, const char *field, const char *value, struct rates *rates);
bool device_line(const char *key, const char *field, struct device *device, char *value);

/* The virtual clock of a stream; NULL for a bad handle. 0, 1 and 2 are the default streams. */
double *clock_of(CUstream handle);

struct copy { /* the side that is not device memory is NULL or 0 */
    CUdeviceptr target, source;
    void *to;
    const void *from;
    size_t size;
};

struct operation { /* one piece of work for a stream: a launch where it has a kernel, else a copy */
    struct kernel *kernel;
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
void pinned_free_device(int device);

/* cuda_streams.c: with a time line, work begins when the GPU has it and not before, and who waits for
 * it waits. */
void clock_reaches(double *clock, int64_t ready_ns);
void wait_until(double ns);

/* cuda_pace.c: the real nanoseconds of the next launch, or of the next one of a graph; how many
 * times longer the next kernel; the same number in [0, 1) for the same one in every process. */
int64_t launch_duration(void);
int64_t graph_duration(size_t nodes);
double kernel_slowdown(void);
double drawn(uint64_t number);

/* cuda_noise.c: how many times longer the next submission takes, 1 where the script is silent. */
void noise_open(int64_t seed, double sigma, const char *path);
double noise(void);

/* cuda_ledger.c: what the current context, or the one of `device`, has used. */
void ledger_open(const char *path);
void ledger_context(int device);
void ledger_launch(void);
void ledger_work(double cost_ns, bool is_kernel);
void ledger_memory(void);
void ledger_pinned(int device, int64_t change);
void ledger_close(int device);

#endif
