/* reference: what a C program gets out of the GPU that gpud measures, in one JSON document.
 *
 * Built and run by deploy/gpu-check. The driver is loaded at run time; the kernels come from files
 * that the driver loads as modules (cubin, fatbin or PTX). Exit codes: 0 the document holds
 * verified figures, 1 a refused call or a wrong result (stderr says which), 2 usage.
 */
#define _GNU_SOURCE
#include "measure.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    void (*measure)(const struct options *options);
} items[] = {
    {"launch", measure_launch}, {"sync", measure_sync}, {"event", measure_event}, {"small_copy", measure_small_copy},
    {"triad", measure_triad},   {"nbody", measure_nbody}, {"device_copy", measure_device_copy},
    {"memory_latency", measure_memory_latency},
    {"peer_copy", measure_peer_copy}, {"small_peer_copy", measure_small_peer_copy},
    {"copy", measure_copies},   {"matmul", measure_matmul}, {"tensor", measure_tensor},
    {"types", launch_types},
};

#define LARGEST_BYTES (UINT64_C(1) << 35)
#define LARGEST_COPY_BYTES (UINT64_C(1) << 32)

static const char usage_text[] =
    "usage: reference --module FILE [--module FILE]... [OPTION]...\n"
    "  --only NAME            launch, sync, event, small_copy, triad, memory_latency,\n"
    "                         device_copy, peer_copy, small_peer_copy, copy, nbody, matmul,\n"
    "                         tensor or, with --once, types; repeatable\n"
    "  --prefix TEXT          of the kernels' names (ref_)\n"
    "  --library PATH         libcuda (libcuda.so.1)\n"
    "  --gpu UUID             else the first in PCI bus order\n"
    "  --peer UUID            a second GPU: the items with peer in their names measure nothing without\n"
    "  --cublas PATH          also measure the matrix products by this library\n"
    "  --once                 launch and verify each kernel, time nothing\n"
    "  --loop                 with --only matmul: multiply until the end of stdin\n"
    "  --no-alarm             a driver call that never returns is left at that\n"
    "  --contexts N           make and give back so many contexts, nothing else\n"
    "  --seed N  --launches N  --graph-nodes N  --bodies N  --matmul N  --tensor N\n"
    "  --triad-bytes N  --copy-bytes N  --pageable-bytes N  --device-copy-bytes N\n"
    "  --peer-copy-bytes N\n"
    "  --dram-bytes N  --l2-bytes N\n";

static void usage(const char *what, const char *value)
{
    if (what)
        fprintf(stderr, "reference: %s: %s\n", what, value);
    fputs(usage_text, stderr);
    exit(2);
}

static uint64_t number(const char *name, const char *text, uint64_t least, uint64_t most,
                       uint64_t multiple)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (!*text || *end || *text == '-' || value < least || value > most || value % multiple) {
        char rule[96];
        snprintf(rule, sizeof rule, "'%.20s' is not a number from %llu to %llu, a multiple of %llu",
                 text, (unsigned long long)least, (unsigned long long)most,
                 (unsigned long long)multiple);
        usage(name, rule);
    }
    return value;
}

static uint64_t ring_bytes(const char *name, const char *text)
{
    uint64_t size = number(name, text, 128, LARGEST_COPY_BYTES, 128);
    if (size & (size - 1))
        usage(name, "not a power of two");
    return size;
}

/* What gpud would choose: beyond the cache, and not more than the GPU has room for. */
static void choose_sizes(struct options *options)
{
    size_t free_bytes, total_bytes, array = 4 * (size_t)gpu.l2_bytes;
    CHECK(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    array = array < 64 * MIB ? 64 * MIB : array;
    array = (array < free_bytes / 6 ? array : free_bytes / 6) / 4096 * 4096;
    options->triad_bytes = options->triad_bytes ? options->triad_bytes : array;
    options->device_copy_bytes = options->device_copy_bytes ? options->device_copy_bytes : array;
    options->dram_bytes = options->dram_bytes ? options->dram_bytes : 16 * MIB;
    while (options->dram_bytes < 4 * (size_t)gpu.l2_bytes)
        options->dram_bytes *= 2;
    options->l2_bytes = options->l2_bytes ? options->l2_bytes : MIB;
    while (options->l2_bytes > 128 && options->l2_bytes > (size_t)gpu.l2_bytes / 4)
        options->l2_bytes /= 2;
    if (!options->bodies)
        options->bodies = 256 * (unsigned)gpu.sm_count;
}

int main(int argc, char **argv)
{
    enum { ONLY = 256, MODULE, PREFIX, LIBRARY, GPU, PEER, CUBLAS, ONCE, LOOP, NO_ALARM, CONTEXTS, SEED, LAUNCHES, NODES, BODIES,
           MATMUL, TENSOR_N, TRIAD_BYTES, COPY_BYTES, PAGEABLE_BYTES, DEVICE_COPY_BYTES,
           PEER_COPY_BYTES, DRAM_BYTES, L2_BYTES };
    static const struct option known[] = {
        {"only", 1, NULL, ONLY}, {"module", 1, NULL, MODULE}, {"prefix", 1, NULL, PREFIX},
        {"library", 1, NULL, LIBRARY}, {"gpu", 1, NULL, GPU}, {"peer", 1, NULL, PEER},
        {"cublas", 1, NULL, CUBLAS},
        {"once", 0, NULL, ONCE}, {"loop", 0, NULL, LOOP}, {"no-alarm", 0, NULL, NO_ALARM},
        {"contexts", 1, NULL, CONTEXTS}, {"seed", 1, NULL, SEED}, {"launches", 1, NULL, LAUNCHES},
        {"graph-nodes", 1, NULL, NODES}, {"bodies", 1, NULL, BODIES}, {"matmul", 1, NULL, MATMUL},
        {"tensor", 1, NULL, TENSOR_N}, {"triad-bytes", 1, NULL, TRIAD_BYTES},
        {"copy-bytes", 1, NULL, COPY_BYTES}, {"pageable-bytes", 1, NULL, PAGEABLE_BYTES},
        {"device-copy-bytes", 1, NULL, DEVICE_COPY_BYTES},
        {"peer-copy-bytes", 1, NULL, PEER_COPY_BYTES},
        {"dram-bytes", 1, NULL, DRAM_BYTES}, {"l2-bytes", 1, NULL, L2_BYTES},
        {NULL, 0, NULL, 0}};
    enum { MOST_MODULES = 16, ITEMS = sizeof items / sizeof *items };
    struct options options = {.seed = 1, .peer = "", .peer_copy_bytes = 64 * MIB, .copy_bytes = 64 * MIB, .pageable_bytes = 16 * MIB,
                              .matmul_n = 4096, .tensor_n = 4096, .launches = 4000,
                              .graph_nodes = 200};
    const char *library = "libcuda.so.1", *uuid = "", *modules[MOST_MODULES];
    int module_count = 0, chosen = 0;
    bool wanted[ITEMS] = {false};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        const char *name = option >= ONLY ? known[option - ONLY].name : "";
        switch (option) {
        case ONLY: {
            int i = 0;
            while (i < ITEMS && strcmp(optarg, items[i].name))
                i++;
            if (i == ITEMS)
                usage("--only has no item", optarg);
            wanted[i] = true;
            chosen++;
            break;
        }
        case MODULE:
            if (module_count == MOST_MODULES)
                usage("--module", "too many");
            modules[module_count++] = optarg;
            break;
        case PREFIX: kernel_prefix = optarg; break;
        case LIBRARY: library = optarg; break;
        case GPU: uuid = optarg; break;
        case PEER: options.peer = optarg; break;
        case CUBLAS: options.cublas = optarg; break;
        case ONCE: options.once = true; break;
        case LOOP: options.loop = true; break;
        case NO_ALARM: longest_s = 0; break;
        case CONTEXTS: options.contexts = (unsigned)number(name, optarg, 1, 10000, 1); break;
        case SEED: options.seed = number(name, optarg, 0, UINT64_MAX, 1); break;
        case LAUNCHES: options.launches = (unsigned)number(name, optarg, 1, 1000000, 1); break;
        case NODES: options.graph_nodes = (unsigned)number(name, optarg, 1, 100000, 1); break;
        case BODIES: options.bodies = (unsigned)number(name, optarg, 256, 1 << 24, 256); break;
        case MATMUL: options.matmul_n = (unsigned)number(name, optarg, 16, 1 << 16, 16); break;
        case TENSOR_N: options.tensor_n = (unsigned)number(name, optarg, 128, 1 << 16, 128); break;
        case TRIAD_BYTES: options.triad_bytes = number(name, optarg, 16, LARGEST_BYTES, 16); break;
        case COPY_BYTES:
            options.copy_bytes = number(name, optarg, 16, LARGEST_COPY_BYTES, 16);
            break;
        case PAGEABLE_BYTES:
            options.pageable_bytes = number(name, optarg, 16, LARGEST_COPY_BYTES, 16);
            break;
        case DEVICE_COPY_BYTES:
            options.device_copy_bytes = number(name, optarg, 16, LARGEST_BYTES, 16);
            break;
        case PEER_COPY_BYTES:
            options.peer_copy_bytes = number(name, optarg, 16, LARGEST_COPY_BYTES, 16);
            break;
        case DRAM_BYTES: options.dram_bytes = ring_bytes(name, optarg); break;
        case L2_BYTES: options.l2_bytes = ring_bytes(name, optarg); break;
        default: usage(NULL, NULL);
        }
    }
    if (optind < argc)
        usage("unexpected", argv[optind]);
    if (!module_count)
        usage("--module", "at least one is needed");
    alarm(longest_s);
    driver_find(library, uuid);
    if (options.contexts) {
        count_contexts(options.contexts);
        return 0;
    }
    driver_open();
    for (int i = 0; i < module_count; i++)
        kernels_load(modules[i]);
    choose_sizes(&options);
    for (int i = 0; i < ITEMS; i++)
        if (!chosen || wanted[i])
            items[i].measure(&options);
    driver_close();
    if (!options.loop)
        report();
    return 0;
}
