/* Latencies of an empty kernel, of small copies and of event pairs, less the clock pair itself. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 250, WARM_UPS = 200, ROW = 200, ROWS = 20, TRIPS = 1000, COUNTED = 250 };
enum { PAIRS = 200, LARGEST_SMALL_COPY = 4096 };
enum { LINE = 128, FEWEST_LINES = 1 << 12, LOADS = 1024, WALKS = 15, FACTOR = 0x19660d };
enum { COLD_LAUNCHES = 250, COLD_TRIPS = 50, COLD_ROWS = 5 };

static CUhandle empty;
static void *no_parameters[1];
static bool settled; /* the clocks, before what is measured now */

static void submit(void)
{
    CHECK(cuLaunchKernel, empty, 1, 1, 1, 1, 1, 1, 0, gpu.stream, no_parameters, NULL);
}

static void wait(void)
{
    CHECK(cuStreamSynchronize, gpu.stream);
}

/* Values in nanoseconds with the clock in them, each for `per` operations. Sorts both. */
static void latency(const char *name, int64_t *values, int64_t *pairs, long count, int per)
{
    double clock = (double)median_ns(pairs, count), middle = (double)median_ns(values, count);
    double scale = 1e-9 / per;
    if (middle <= clock) {
        missing(name, "it takes less time than the clock itself");
        return;
    }
    struct rate rate = {(middle - clock) * scale,
                        ((double)quantile_ns(values, count, 0.1) - clock) * scale,
                        ((double)quantile_ns(values, count, 0.9) - clock) * scale, settled};
    figure(name, "seconds", rate, (int)count, "");
}

void timed(const char *name, long count, int per, void (*run)(void), long block)
{
    int64_t *values = memory((size_t)count * sizeof *values);
    int64_t *pairs = memory((size_t)count * sizeof *pairs);
    for (long i = 0; i < count; i++) {
        if (i % block == 0)
            wait();
        int64_t start = now_ns();
        run();
        int64_t end = now_ns();
        pairs[i] = now_ns() - end;
        values[i] = end - start;
    }
    wait();
    latency(name, values, pairs, count, per);
    free(values), free(pairs);
}

static void round_trip(void)
{
    submit();
    wait();
}

static void row(void)
{
    for (int i = 0; i < ROW; i++)
        submit();
    wait();
}

static CUhandle graph;

static void graph_trip(void)
{
    CHECK(cuGraphLaunch, graph, gpu.stream);
    wait();
}

/* A graph of empty kernels in a chain; its figure is for `per` of its launches or nodes. */
static void measure_graph(const char *name, unsigned nodes, int per)
{
    if (!cu.cuGraphCreate || !cu.cuGraphAddKernelNode || !cu.cuGraphInstantiateWithFlags
        || !cu.cuGraphLaunch || !cu.cuGraphExecDestroy || !cu.cuGraphDestroy) {
        missing(name, "the driver does not define the functions of CUDA graphs");
        return;
    }
    const struct kernel_node kernel = {.function = empty, .grid = {1, 1, 1}, .block = {1, 1, 1}};
    CUhandle built, node = NULL;
    CHECK(cuGraphCreate, &built, 0);
    for (unsigned i = 0; i < nodes; i++) {
        CUhandle before = node;
        CHECK(cuGraphAddKernelNode, &node, built, &before, i > 0, &kernel);
    }
    CHECK(cuGraphInstantiateWithFlags, &graph, built, 0);
    for (int i = 0; i < 10; i++)
        graph_trip();
    timed(name, TRIPS / 4, per, graph_trip, 1);
    CHECK(cuGraphExecDestroy, graph);
    CHECK(cuGraphDestroy, built);
}

static CUhandle blocking_event;

static void block(void)
{
    submit();
    CHECK(cuEventRecord, blocking_event, gpu.stream);
    CHECK(cuEventSynchronize, blocking_event);
}

static void query(void)
{
    submit();
    CUresult code = cu.cuStreamQuery(gpu.stream);
    if (code != CU_NOT_READY)
        driver_check(code, "cuStreamQuery");
}

/* Two places on the host, as gpud has them. */
static struct { CUdeviceptr device; unsigned char *there, *back; size_t size; } small;

static void small_in(void)
{
    CHECK(cuMemcpyHtoDAsync_v2, small.device, small.there, small.size, gpu.stream);
    wait();
}

static void small_out(void)
{
    CHECK(cuMemcpyDtoHAsync_v2, small.back, small.device, small.size, gpu.stream);
    wait();
}

static void small_round_trip(void)
{
    CHECK(cuMemcpyHtoDAsync_v2, small.device, small.there, small.size, gpu.stream);
    CHECK(cuMemcpyDtoHAsync_v2, small.back, small.device, small.size, gpu.stream);
    wait();
}

static void check_small(struct chance *chance)
{
    for (size_t i = 0; i < small.size; i++) {
        small.there[i] = (unsigned char)next_random(chance);
        small.back[i] = (unsigned char)~small.there[i];
    }
    poison(small.device, LARGEST_SMALL_COPY);
    small_in();
    small_out();
    for (size_t i = 0; i < small.size; i++)
        if (small.back[i] != small.there[i])
            fail("a copy of %zu bytes: byte %zu came back wrong", small.size, i);
}

static void measure_small_copies(uint64_t seed)
{
    static const struct { size_t size; const char *name; void (*run)(void); } copies[] = {
        {4, "host_to_device_4b", small_in},       {4096, "host_to_device_4kib", small_in},
        {4, "device_to_host_4b", small_out},      {4096, "device_to_host_4kib", small_out},
        {4, "round_trip_4b", small_round_trip},   {4096, "round_trip_4kib", small_round_trip},
    };
    struct chance chance = {seed};
    small.device = device_memory(LARGEST_SMALL_COPY);
    small.there = pinned_memory(LARGEST_SMALL_COPY);
    small.back = small.there ? pinned_memory(LARGEST_SMALL_COPY) : NULL;
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        if (!small.back) {
            missing(copies[i].name, "the driver grants no page-locked memory");
            continue;
        }
        small.size = copies[i].size;
        check_small(&chance);
        timed(copies[i].name, TRIPS, 1, copies[i].run, 1);
    }
    if (small.back)
        CHECK(cuMemFreeHost, small.back);
    if (small.there)
        CHECK(cuMemFreeHost, small.there);
}

static void record(void)
{
    CHECK(cuEventRecord, gpu.last_event, gpu.stream);
}

/* What two events see of the device's own time, with nothing or a kernel between them. Other work
 * goes ahead, so that the host has put all of it on the stream before the first event. */
static void measure_events(const char *name, struct launch *ahead, void (*run)(void), int count,
                           int per)
{
    int64_t values[PAIRS], none[PAIRS] = {0};
    for (int i = 0; i < count; i++) {
        float milliseconds;
        launch_once(ahead);
        CHECK(cuEventRecord, gpu.first_event, gpu.stream);
        if (run)
            run();
        CHECK(cuEventRecord, gpu.last_event, gpu.stream);
        CHECK(cuEventSynchronize, gpu.last_event);
        CHECK(cuEventElapsedTime, &milliseconds, gpu.first_event, gpu.last_event);
        values[i] = (int64_t)((double)milliseconds * 1e6);
    }
    latency(name, values, none, count, per);
}

static void check_launches(uint64_t seed)
{
    unsigned start = (unsigned)(seed % 1000000), counted;
    CUdeviceptr counter = device_memory(4);
    CUhandle count = kernel("count");
    void *parameters[] = {&counter};
    upload(counter, &start, sizeof start);
    for (int i = 0; i < COUNTED; i++)
        CHECK(cuLaunchKernel, count, 1, 1, 1, 1, 1, 1, 0, gpu.stream, parameters, NULL);
    download(&counted, counter, sizeof counted);
    if (counted - start != COUNTED)
        fail("%scount: %d launches were made and %u counted", kernel_prefix, COUNTED,
             counted - start);
    verified("count");
}

/* Work to lift the clocks with, as gpud's child does it: forces of bodies that are in one place. */
static struct launch load(void)
{
    static CUdeviceptr position, found;
    static unsigned n;
    static float eps2 = 0.01f;
    n = 256 * (unsigned)gpu.sm_count;
    size_t bytes = 16 * (size_t)n;
    position = device_memory(bytes), found = device_memory(bytes);
    CHECK(cuMemsetD32_v2, position, 0x3f800000, bytes / 4);
    CHECK(cuCtxSynchronize);
    struct launch launch;
    const struct variant *variant = next_variant("nbody", NULL);
    if (!variant || !prepare(&launch, variant, n))
        fail("no module has a kernel to warm up with");
    launch.parameters[0] = &position;
    launch.parameters[1] = &found;
    launch.parameters[2] = &n;
    launch.parameters[3] = &eps2;
    return launch;
}

/* The kernel is there, and launches of it are not lost. */
static void prepare_empty(uint64_t seed)
{
    empty = kernel("empty");
    submit();
    wait();
    verified("empty");
    check_launches(seed);
}

void measure_launch(const struct options *options)
{
    prepare_empty(options->seed);
    if (options->once)
        return;
    settled = false;
    timed("submit_cold", COLD_LAUNCHES, 1, submit, BLOCK);
    timed("roundtrip_cold", COLD_TRIPS, 1, round_trip, 1);
    timed("pipelined_cold", COLD_ROWS, ROW, row, 1);
    struct launch ahead = load();
    settled = warm_up(launch_once, &ahead);
    for (int i = 0; i < WARM_UPS; i++)
        submit();
    wait();
    timed("submit", (long)options->launches, 1, submit, BLOCK);
    timed("roundtrip", TRIPS, 1, round_trip, 1);
    timed("pipelined", ROWS, ROW, row, 1);
    measure_graph("graph", options->graph_nodes, (int)options->graph_nodes);
    device_memory_free_all();
}

/* Blocking waits and queries, each begun on a stream that is empty; a graph of ten kernels. */
void measure_sync(const struct options *options)
{
    prepare_empty(options->seed);
    if (options->once)
        return;
    struct launch ahead = load();
    settled = warm_up(launch_once, &ahead);
    CHECK(cuEventCreate, &blocking_event, CU_EVENT_BLOCKING_SYNC);
    timed("blocking", TRIPS, 1, block, 1);
    timed("query", TRIPS, 1, query, 1);
    measure_graph("graph_10", 10, 1);
    device_memory_free_all();
}

void measure_event(const struct options *options)
{
    prepare_empty(options->seed);
    if (options->once)
        return;
    struct launch ahead = load();
    settled = warm_up(launch_once, &ahead);
    measure_events("pair", &ahead, NULL, PAIRS, 1);
    measure_events("kernel", &ahead, submit, PAIRS, 1);
    timed("record", TRIPS, 1, record, BLOCK);
    device_memory_free_all();
}

void warm_for_latency(void)
{
    struct launch ahead = load();
    settled = warm_up(launch_once, &ahead);
}

void measure_small_copy(const struct options *options)
{
    if (options->once)
        return;
    warm_for_latency();
    measure_small_copies(options->seed);
    device_memory_free_all();
}

static struct { CUhandle kernel; CUdeviceptr place; unsigned loads; } chase = {.loads = LOADS};

static void walk(void)
{
    void *parameters[] = {&chase.place, &chase.loads};
    CHECK(cuLaunchKernel, chase.kernel, 1, 1, 1, 1, 1, 1, 0, gpu.stream, parameters, NULL);
}

/* Fill the cache with other memory. */
static void evict(void)
{
    size_t size = 2 * (size_t)gpu.l2_bytes;
    poison(device_memory(size < LINE ? LINE : size), size < LINE ? LINE : size);
}

/* Link lines of memory into a ring, walk along it, and compare where that leads. One load of it is
 * the figure `name`; NULL: one walk that is not timed. */
static void follow(const char *name, unsigned lines, uint64_t seed, struct launch *ahead)
{
    unsigned factor = FACTOR, step = 2 * (unsigned)(seed % lines) + 1, x = 0;
    CUdeviceptr ring = device_memory((size_t)lines * LINE), end;
    void *parameters[] = {&ring, &lines, &factor, &step};
    chase.kernel = kernel("chase");
    chase.place = device_memory(sizeof end);
    poison(ring, (size_t)lines * LINE);
    upload(chase.place, &ring, sizeof ring);
    CHECK(cuLaunchKernel, kernel("ring"), 16 * (unsigned)gpu.sm_count, 1, 1, 256, 1, 1, 0,
          gpu.stream, parameters, NULL);
    if (lines * (uint64_t)LINE > (uint64_t)gpu.l2_bytes)
        evict();
    if (name)
        measure_events(name, ahead, walk, WALKS, LOADS);
    else
        walk();
    download(&end, chase.place, sizeof end);
    for (int i = 0; i < LOADS * (name ? WALKS : 1); i++)
        x = (x * factor + step) % lines;
    if (end != ring + (CUdeviceptr)x * LINE)
        fail("%schase: the loads did not end where their addresses lead", kernel_prefix);
}

/* Loads of which each gives the address of the next, in memory that the cache has not, and has. */
void measure_memory_latency(const struct options *options)
{
    if (options->once) {
        follow(NULL, FEWEST_LINES, options->seed, NULL);
    } else {
        struct launch ahead = load();
        settled = warm_up(launch_once, &ahead);
        follow("dram", (unsigned)(options->dram_bytes / LINE), options->seed, &ahead);
        follow("l2", (unsigned)(options->l2_bytes / LINE), options->seed, &ahead);
    }
    verified("ring");
    verified("chase");
    device_memory_free_all();
}
