/* Memory: the STREAM triad, copies on the device, copies between host and device. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct triad { float *a, *b, *c, scale; CUdeviceptr output; size_t count; };

static void check_triad(void *context, const char *variant)
{
    struct triad *triad = context;
    download(triad->a, triad->output, triad->count * sizeof(float));
    for (size_t i = 0; i < triad->count; i++)
        if (triad->a[i] != triad->b[i] + triad->scale * triad->c[i]) /* a NaN is unequal too */
            fail("%s%s: element %zu is %g, not %g + %g * %g", kernel_prefix, variant, i,
                 (double)triad->a[i], (double)triad->b[i], (double)triad->scale,
                 (double)triad->c[i]);
}

void measure_triad(const struct options *options)
{
    struct chance chance = {options->seed};
    size_t bytes = options->triad_bytes / 16 * 16;
    struct triad triad = {memory(bytes), memory(bytes), memory(bytes),
                          (float)(2 + small_integer(&chance, 1)), 0, bytes / sizeof(float)};
    for (size_t i = 0; i < triad.count; i++) { /* small integers: exact, whatever is contracted */
        triad.b[i] = (float)small_integer(&chance, 1000);
        triad.c[i] = (float)small_integer(&chance, 1000);
    }
    CUdeviceptr a = device_memory(bytes), b = device_memory(bytes), c = device_memory(bytes);
    upload(b, triad.b, bytes);
    upload(c, triad.c, bytes);
    triad.output = a;
    unsigned n4 = (unsigned)(bytes / 16);
    struct item item = {
        .name = "triad", .unit = "bytes_per_second", .n = n4, .work = 3.0 * (double)bytes,
        .parameters = {&a, &b, &c, &triad.scale, &n4},
        .output = a, .output_bytes = bytes, .check = check_triad, .context = &triad,
    };
    run_item(&item, options);
    device_memory_free_all();
    free(triad.a), free(triad.b), free(triad.c);
}

struct copied { CUdeviceptr to, from; size_t size; unsigned char *sent, *received; };

static void check_copied(struct copied *copied)
{
    memset(copied->received, 0, copied->size);
    download(copied->received, copied->to, copied->size);
    if (memcmp(copied->received, copied->sent, copied->size))
        fail("cuMemcpyDtoDAsync: the bytes that arrived are not those that were sent");
}

static void copy_on_device(void *context)
{
    struct copied *copied = context;
    CHECK(cuMemcpyDtoDAsync_v2, copied->to, copied->from, copied->size, gpu.stream);
}

static void fill_random(unsigned char *bytes, size_t size, struct chance *chance)
{
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = next_random(chance);
        memcpy(bytes + i, &word, size - i < 8 ? size - i : 8);
    }
}

/* By the driver's own copy, as gpud does it. */
void measure_device_copy(const struct options *options)
{
    if (options->once)
        return; /* there is no kernel in it */
    if (!cu.cuMemcpyDtoDAsync_v2) {
        missing("device_copy", "the driver does not define cuMemcpyDtoDAsync_v2");
        return;
    }
    struct chance chance = {options->seed};
    size_t bytes = options->device_copy_bytes / 16 * 16;
    struct copied copied = {device_memory(bytes), device_memory(bytes), bytes, memory(bytes),
                            memory(bytes)};
    fill_random(copied.sent, bytes, &chance);
    upload(copied.from, copied.sent, bytes);
    struct rate rate = rate_of(copy_on_device, &copied, 2.0 * (double)bytes); /* read, written */
    poison(copied.to, bytes);
    copy_on_device(&copied);
    check_copied(&copied);
    figure("device_copy", "bytes_per_second", rate, BATCHES, "");
    device_memory_free_all();
    free(copied.sent), free(copied.received);
}

struct bus { CUdeviceptr in, out; unsigned char *from, *to; size_t size; };

static void copy_in(void *context)
{
    struct bus *bus = context;
    CHECK(cuMemcpyHtoDAsync_v2, bus->in, bus->from, bus->size, gpu.stream);
}

static void copy_out(void *context)
{
    struct bus *bus = context;
    CHECK(cuMemcpyDtoHAsync_v2, bus->to, bus->out, bus->size, gpu.stream);
}

/* Both ways at once: the second stream begins and ends with the first. */
static void copy_both(void *context)
{
    struct bus *bus = context;
    CHECK(cuEventRecord, gpu.fork, gpu.stream);
    CHECK(cuStreamWaitEvent, gpu.second, gpu.fork, 0);
    CHECK(cuMemcpyHtoDAsync_v2, bus->in, bus->from, bus->size, gpu.stream);
    CHECK(cuMemcpyDtoHAsync_v2, bus->to, bus->out, bus->size, gpu.second);
    CHECK(cuEventRecord, gpu.join, gpu.second);
    CHECK(cuStreamWaitEvent, gpu.stream, gpu.join, 0);
}

/* After one more run into poisoned memory: what went in and what came out, byte by byte. */
static void check_bus(struct bus *bus, enqueue run, const char *name, unsigned char *spare)
{
    bool in = run != copy_out, out = run != copy_in;
    upload(bus->out, bus->from, bus->size);
    poison(bus->in, bus->size);
    memset(bus->to, 0, bus->size);
    run(bus);
    synchronize();
    if (out && memcmp(bus->to, bus->from, bus->size))
        fail("%s: the bytes that came out are not those that were sent", name);
    if (!in)
        return;
    memset(spare, 0, bus->size);
    download(spare, bus->in, bus->size);
    if (memcmp(spare, bus->from, bus->size))
        fail("%s: the bytes that went in are not those that were sent", name);
}

static void measure_bus(struct bus *bus, enqueue run, const char *name, unsigned char *spare)
{
    struct rate rate = rate_of(run, bus, (double)bus->size * (run == copy_both ? 2 : 1));
    check_bus(bus, run, name, spare);
    figure(name, "bytes_per_second", rate, BATCHES, "");
}

static void measure_pinned(struct bus bus, unsigned char *spare, struct chance *chance)
{
    bus.from = pinned_memory(bus.size);
    bus.to = bus.from ? pinned_memory(bus.size) : NULL;
    if (bus.to) {
        fill_random(bus.from, bus.size, chance);
        measure_bus(&bus, copy_in, "host_to_device", spare);
        measure_bus(&bus, copy_out, "device_to_host", spare);
        bus.size /= 2; /* gpud's two halves */
        if (cu.cuStreamWaitEvent)
            measure_bus(&bus, copy_both, "both", spare);
        else
            missing("both", "the driver does not define cuStreamWaitEvent");
        CHECK(cuMemFreeHost, bus.to);
    } else {
        missing("host_to_device", "the driver grants no page-locked memory of this size");
        missing("device_to_host", "the driver grants no page-locked memory of this size");
        missing("both", "the driver grants no page-locked memory of this size");
    }
    if (bus.from)
        CHECK(cuMemFreeHost, bus.from);
}

void measure_copies(const struct options *options)
{
    if (options->once)
        return; /* there is no kernel in it */
    struct chance chance = {options->seed};
    size_t pinned = options->copy_bytes, pageable = options->pageable_bytes;
    size_t most = pinned > pageable ? pinned : pageable;
    unsigned char *spare = memory(most);
    struct bus bus = {device_memory(most), device_memory(most), NULL, NULL, pinned};
    measure_pinned(bus, spare, &chance);
    bus.size = pageable;
    bus.from = memory(pageable);
    bus.to = memory(pageable);
    fill_random(bus.from, pageable, &chance);
    memset(bus.to, 0, pageable);
    host_time_counts = true; /* the driver copies through memory of its own before it submits */
    measure_bus(&bus, copy_in, "pageable_host_to_device", spare);
    measure_bus(&bus, copy_out, "pageable_device_to_host", spare);
    host_time_counts = false;
    device_memory_free_all();
    free(bus.from), free(bus.to), free(spare);
}
