/* Clocks, batches, random data and the figures that are printed. */
#ifndef MEASURE_H
#define MEASURE_H

#include "driver.h"

/* As gpud's throughput.py has them: the clocks of a GPU depend on how long it is loaded. */
enum { BATCHES = 7, LONGER = 2, MOST_REPEATS = 10000 };
#define BATCH_S 0.008
#define WARM_UP_S 1.0 /* at most: until three batches, LONGER times as long, agree within WITHIN */
#define WITHIN 0.02
#define MIB ((size_t)1 << 20)

struct options {
    uint64_t seed;
    bool loop; /* multiply until the end of stdin, see guest.c */
    bool once; /* launch and verify each kernel, time nothing: for compute-sanitizer */
    const char *cublas, *peer; /* the UUID of a second GPU, or empty */
    size_t triad_bytes, copy_bytes, pageable_bytes, device_copy_bytes, peer_copy_bytes; /* of one array or buffer */
    size_t dram_bytes, l2_bytes; /* of a ring of addresses, powers of two */
    unsigned contexts, bodies, matmul_n, tensor_n, launches, graph_nodes;
};

/* Seconds after which a driver call that never returns ends by SIGALRM; 0 for never. */
extern unsigned longest_s;

int64_t now_ns(void);
int64_t median_ns(int64_t *values, long count);    /* sorts them */
int64_t quantile_ns(const int64_t *sorted, long count, double q);

struct rate {
    double median, minimum, maximum;
    bool settled; /* the clocks were up: three batches of the warm-up agreed */
};
/* One figure by its name: rates per second, latencies in seconds. */
void figure(const char *name, const char *unit, struct rate rate, int count, const char *variant);
/* A kernel whose result was compared, and a figure that this machine cannot offer. */
void verified(const char *what);
void missing(const char *name, const char *why);
void report(void);

/* Put work on the streams; called without any wait in between. */
typedef void (*enqueue)(void *context);

/* Warm up by the same work until it settles, then time batches between events on gpu.stream: the
 * rate of `work` per second. */
struct rate rate_of(enqueue run, void *context, double work);
extern bool host_time_counts; /* where an event need not see all: copies of ordinary memory */
double elapsed_s(enqueue run, void *context, int repeats);
int batch_size(enqueue run, void *context);

/* Lift the clocks by load, as a latency is measured on a GPU that is awake; true where they are. */
bool warm_up(enqueue run, void *context);

struct chance { uint64_t state; };
uint64_t next_random(struct chance *chance);
int small_integer(struct chance *chance, int most); /* -most .. most */

void *memory(size_t size); /* of the host, or the end */

/* latency.c: time `count` calls of `run` one by one, with a wait at every `block`-th, for a figure in
 * seconds of each of the `per` operations in it; lift the clocks before. */
void timed(const char *name, long count, int per, void (*run)(void), long block);
void warm_for_latency(void);

/* Launch shapes; `variants.c` is the table. */
struct variant {
    const char *prefix, *item, *name;
    unsigned per_block;       /* elements that a block owns, along x where the grid is square */
    unsigned per_block_y;     /* rows it owns; 0 where the grid is a line */
    unsigned blocks_per_sm;   /* a grid of this many blocks a multiprocessor instead; else 0 */
    unsigned block_x, block_y, shared_bytes;
    bool small; /* for small sizes only: verified with --once, never timed */
};
const struct variant *next_variant(const char *item, const struct variant *last);
bool every_variant_can(const char *item, size_t n);
unsigned wide_n(unsigned n, unsigned sms); /* a size near n for the variants that cannot do it */

struct launch {
    CUhandle function;
    unsigned grid_x, grid_y, block_x, block_y, shared_bytes;
    void *parameters[8];
};
/* False where this variant cannot do n elements, or no module has it. */
bool prepare(struct launch *launch, const struct variant *variant, size_t n);
void launch_once(void *launch);

/* Time and verify every variant of an item, and keep the fastest under `name`. `check` ends the
 * program where a result is wrong; the output is poisoned before the launch that it looks at. */
struct item {
    const char *name, *unit, *figure; /* figure: its name, where it is another */
    size_t n;         /* what the variants' shapes count */
    double work;      /* of one launch, in the figure's unit times a second */
    void *parameters[8];
    CUdeviceptr output;
    size_t output_bytes;
    void (*check)(void *context, const char *variant);
    void *context;
};
void run_item(const struct item *item, const struct options *options);

void measure_launch(const struct options *options);
void measure_event(const struct options *options);
void measure_sync(const struct options *options);
void measure_small_copy(const struct options *options);
void measure_triad(const struct options *options);
void measure_device_copy(const struct options *options);
void measure_copies(const struct options *options);
void measure_peer_copy(const struct options *options);
void measure_small_peer_copy(const struct options *options);
void measure_memory_latency(const struct options *options);
void measure_nbody(const struct options *options);
void measure_matmul(const struct options *options);
void measure_tensor(const struct options *options);
/* types.c: with --once, gpud's kernels for other types of numbers; no figure. */
void launch_types(const struct options *options);
uint16_t half_of(int small); /* FP16 of -8 .. 8 */

/* guest.c: call `run` until stdin ends, and print how often by when. */
void loop(enqueue run, void *context, const char *name);
/* Make and give back so many contexts, or as many as the driver grants; print what happened. */
void count_contexts(unsigned count);

/* cublas.c: the same products by cuBLAS; says what is missing where it cannot be loaded. */
enum cublas_kind { SINGLE, TENSOR };
/* Prepare a product; says why there is none. */
const char *cublas_product(const struct options *options, enum cublas_kind kind, CUdeviceptr a,
                           CUdeviceptr b, CUdeviceptr c, unsigned n, enqueue *run, void **context);
void measure_cublas(const struct options *options, enum cublas_kind kind, CUdeviceptr a,
                    CUdeviceptr b, CUdeviceptr c, unsigned n,
                    void (*check)(void *context, const char *variant), void *context);

#endif
