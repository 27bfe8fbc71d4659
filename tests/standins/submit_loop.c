/* submit_loop LIBCUDA N [MODE [GPU [ROW]]], or N TYPE GPU ROW SIZE PTX: the reference of gpud's latencies and products.
 *
 * Times N sequences of an empty kernel one by one on the GPU with that index (0), in blocks of 250
 * with an untimed synchronise between them. A sequence is, by MODE:
 *   submit      one launch (the default)
 *   roundtrip   one launch and a synchronise
 *   pipelined   ROW launches (200) and a synchronise
 *   graph       one launch of a graph of ROW empty kernels, and a synchronise
 * Prints whole nanoseconds: the median sequence, clock pair included; the median of a bare clock
 * pair taken in the same loop; then the sequence's 10th, 90th and 99th percentile.
 *
 * With TYPE fp64, tf32, bf16 or int8: N batches of ROW products of matrices of SIZE x SIZE, by the
 * kernel of the file PTX, between two events. Prints the same of these batches; no clock is read.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK 250
#define WARM_UP 200

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry gpud_empty()\n{\n\tret;\n}\n";

static void *library, *module, *function, *stream, *graph;
static long row = 200, size;

static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void *, void **, void **);
static int (*synchronize)(void *);
static int (*launch_graph)(void *, void *);
static int (*record)(void *, void *), (*wait_for)(void *);

struct product { const char *mode, *kernel; unsigned tile, across, down; };

static const struct product products[] = {
    {"fp64", "gpud_matmul_fp64", 64, 8, 8},
    {"tf32", "gpud_matmul_tf32", 128, 256, 1},
    {"bf16", "gpud_matmul_bf16", 128, 256, 1},
    {"int8", "gpud_matmul_int8", 128, 256, 1},
};

static void *symbol(const char *name)
{
    void *address = dlsym(library, name);
    if (!address) {
        fprintf(stderr, "submit_loop: %s\n", dlerror());
        exit(2);
    }
    return address;
}

static void check(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "submit_loop: %s: error %d\n", what, code);
        exit(1);
    }
}

/* Call a driver function by name; the argument types are those of its prototype. */
#define CALL(name, types, arguments) check(((int(*) types)symbol(name)) arguments, name)

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static int64_t median(const int64_t *sorted, long count)
{
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static long long percentile(const int64_t *sorted, long count, int percent)
{
    return sorted[(count - 1) * percent / 100];
}

static int submit(void)
{
    return launch(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static int roundtrip(void)
{
    int code = submit();
    return code ? code : synchronize(stream);
}

static int pipelined(void)
{
    int code = 0;
    for (long i = 0; i < row && !code; i++)
        code = submit();
    return code ? code : synchronize(stream);
}

static int graphed(void)
{
    int code = launch_graph(graph, stream);
    return code ? code : synchronize(stream);
}

static const struct mode { const char *name; int (*sequence)(void); } modes[] = {
    {"submit", submit}, {"roundtrip", roundtrip}, {"pipelined", pipelined}, {"graph", graphed},
};

static const struct mode *mode_named(const char *name)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(modes[i].name, name))
            return &modes[i];
    return NULL;
}

/* CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h, which begins with all of _v1. */
struct kernel_node {
    void *function;
    unsigned grid[3], block[3], shared_bytes;
    void **params, **extra;
    void *kernel, *context;
};

static void make_graph(void)
{
    struct kernel_node kernel = {.function = function, .grid = {1, 1, 1}, .block = {1, 1, 1}};
    void *built, *node = NULL;
    CALL("cuGraphCreate", (void **, unsigned), (&built, 0));
    for (long i = 0; i < row; i++) {
        void *before = node;
        CALL("cuGraphAddKernelNode_v2", (void **, void *, void **, size_t, struct kernel_node *),
             (&node, built, &before, i > 0, &kernel));
    }
    CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t), (&graph, built, 0));
    launch_graph = symbol("cuGraphLaunch");
}

static void prepare(int gpu)
{
    int device;
    void *context;
    CALL("cuInit", (unsigned), (0));
    CALL("cuDeviceGet", (int *, int), (&device, gpu));
    CALL("cuDevicePrimaryCtxRetain", (void **, int), (&context, device));
    CALL("cuCtxSetCurrent", (void *), (context));
    CALL("cuStreamCreate", (void **, unsigned), (&stream, 0));
    CALL("cuModuleLoadDataEx", (void **, const void *, unsigned, int *, void **),
         (&module, ptx, 0, NULL, NULL));
    CALL("cuModuleGetFunction", (void **, void *, const char *), (&function, module, "gpud_empty"));
    launch = symbol("cuLaunchKernel");
    synchronize = symbol("cuStreamSynchronize");
    record = symbol("cuEventRecord");
    wait_for = symbol("cuEventSynchronize");
    for (long i = 0; i < WARM_UP; i++)
        check(submit(), "cuLaunchKernel");
}

static void load_product(const char *file, const char *kernel)
{
    static char text[1 << 20];
    FILE *from = fopen(file, "r");
    if (!from || !fread(text, 1, sizeof text - 1, from)) {
        perror(file);
        exit(2);
    }
    fclose(from);
    CALL("cuModuleLoadDataEx", (void **, const void *, unsigned, int *, void **),
         (&module, text, 0, NULL, NULL));
    CALL("cuModuleGetFunction", (void **, void *, const char *), (&function, module, kernel));
}

/* Nanoseconds of every batch, by events as a throughput probe of gpud's has it. */
static void multiply(const struct product *product, const char *file, int64_t *taken, long count)
{
    load_product(file, product->kernel);
    uint64_t matrix[3];
    unsigned n = (unsigned)size, tiles = n / product->tile;
    void *parameters[] = {&matrix[0], &matrix[1], &matrix[2], &n}, *first, *last;
    for (int i = 0; i < 3; i++) {
        CALL("cuMemAlloc_v2", (uint64_t *, size_t), (&matrix[i], sizeof(double) * n * n));
        CALL("cuMemsetD32_v2", (uint64_t, unsigned, size_t), (matrix[i], 0, (size_t)n * n * 2));
    }
    CALL("cuEventCreate", (void **, unsigned), (&first, 0));
    CALL("cuEventCreate", (void **, unsigned), (&last, 0));
    for (long i = -3; i < count; i++) { /* the first three are to warm up */
        float ms = 0;
        check(record(first, stream), "cuEventRecord");
        for (long j = 0; j < row; j++)
            check(launch(function, tiles, tiles, 1, product->across, product->down, 1, 0, stream,
                         parameters, NULL), "cuLaunchKernel");
        check(record(last, stream), "cuEventRecord");
        check(wait_for(last), "cuEventSynchronize");
        CALL("cuEventElapsedTime", (float *, void *, void *), (&ms, first, last));
        if (i >= 0)
            taken[i] = (int64_t)(ms * 1e6);
    }
}

static const struct product *product_named(const char *mode)
{
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (!strcmp(products[i].mode, mode))
            return &products[i];
    return NULL;
}

static void time_sequences(const struct mode *mode, int64_t *taken, int64_t *pairs, long count)
{
    if (mode->sequence == graphed)
        make_graph();
    for (long i = 0; i < count; i++) {
        if (i % BLOCK == 0)
            check(synchronize(stream), "cuStreamSynchronize");
        int64_t start = now_ns();
        int code = mode->sequence();
        int64_t end = now_ns();
        pairs[i] = now_ns() - end;
        taken[i] = end - start;
        check(code, mode->name);
    }
    check(synchronize(stream), "cuStreamSynchronize");
}

int main(int argc, char **argv)
{
    long count = argc >= 3 && argc <= 8 ? strtol(argv[2], NULL, 10) : 0;
    const struct mode *mode = mode_named(argc > 3 ? argv[3] : "submit");
    const struct product *product = argc == 8 ? product_named(argv[3]) : NULL;
    int gpu = argc > 4 ? atoi(argv[4]) : 0;
    if (argc > 5)
        row = strtol(argv[5], NULL, 10);
    if (argc > 6)
        size = strtol(argv[6], NULL, 10);
    if (count <= 0 || (!mode && (!product || size <= 0)) || row <= 0) {
        fprintf(stderr, "usage: submit_loop LIBCUDA N [submit|roundtrip|pipelined|graph [GPU [ROW]]]\n"
                        "       submit_loop LIBCUDA N fp64|tf32|bf16|int8 GPU ROW SIZE PTX\n");
        return 2;
    }
    library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "submit_loop: %s\n", dlerror());
        return 2;
    }
    prepare(gpu);
    int64_t *taken = calloc(count, sizeof *taken), *pairs = calloc(count, sizeof *pairs);
    if (!taken || !pairs)
        return 2;
    if (product)
        multiply(product, argv[7], taken, count);
    else
        time_sequences(mode, taken, pairs, count);
    qsort(taken, count, sizeof *taken, compare);
    qsort(pairs, count, sizeof *pairs, compare);
    printf("%lld %lld %lld %lld %lld\n", (long long)median(taken, count),
           (long long)median(pairs, count), percentile(taken, count, 10),
           percentile(taken, count, 90), percentile(taken, count, 99));
    return 0;
}
