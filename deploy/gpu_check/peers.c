/* Copies between two GPUs, on the first one's stream: staged through the host, then with access to
 * the other one's memory where the driver grants it. Every byte is compared. */
#include "measure.h"

#include <stdlib.h>
#include <string.h>

enum { TRIPS = 1000, SMALL = 4, BUFFER = 4096 };

static struct { CUdeviceptr here, there; size_t size; } across;

static void enqueue_to_peer(void *unused)
{
    (void)unused;
    CHECK(cuMemcpyPeerAsync, across.there, peer.context, across.here, gpu.context, across.size,
          gpu.stream);
}

static void enqueue_from_peer(void *unused)
{
    (void)unused;
    CHECK(cuMemcpyPeerAsync, across.here, gpu.context, across.there, peer.context, across.size,
          gpu.stream);
}

static void to_peer_and_wait(void)
{
    enqueue_to_peer(NULL);
    CHECK(cuStreamSynchronize, gpu.stream);
}

static void from_peer_and_wait(void)
{
    enqueue_from_peer(NULL);
    CHECK(cuStreamSynchronize, gpu.stream);
}

static const struct way {
    const char *large, *small;
    enqueue run;
    void (*trip)(void);
    bool direct;
} ways[] = {
    {"staged_to_peer", "staged_to_peer_4b", enqueue_to_peer, to_peer_and_wait, false},
    {"staged_from_peer", "staged_from_peer_4b", enqueue_from_peer, from_peer_and_wait, false},
    {"to_peer", "to_peer_4b", enqueue_to_peer, to_peer_and_wait, true},
    {"from_peer", "from_peer_4b", enqueue_from_peer, from_peer_and_wait, true},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void on_peer(void (*act)(void *data), void *data)
{
    CHECK(cuCtxSetCurrent, peer.context);
    act(data);
    CHECK(cuCtxSetCurrent, gpu.context);
}

static void take_there(void *size)
{
    CHECK(cuMemAlloc_v2, &across.there, *(size_t *)size);
}

static void poison_there(void *size)
{
    poison(across.there, *(size_t *)size);
}

static void read_there(void *bytes)
{
    CHECK(cuMemcpyDtoH_v2, bytes, across.there, across.size);
}

static void write_there(void *bytes)
{
    CHECK(cuMemcpyHtoD_v2, across.there, bytes, across.size);
    CHECK(cuCtxSynchronize);
}

/* Once more into poisoned memory: the bytes that arrive are those that were sent. */
static void check(const struct way *way, unsigned char *sent, unsigned char *received,
                  const char *name)
{
    bool to = way->run == enqueue_to_peer;
    memset(received, 0, across.size);
    if (to) {
        upload(across.here, sent, across.size);
        on_peer(poison_there, &across.size);
    } else {
        on_peer(write_there, sent);
        poison(across.here, across.size);
    }
    way->trip();
    if (to)
        on_peer(read_there, received);
    else
        download(received, across.here, across.size);
    if (memcmp(received, sent, across.size))
        fail("%s: the bytes that arrived are not those that were sent", name);
}

static void measure(const struct options *options, size_t size, size_t buffer, bool small)
{
    struct chance chance = {options->seed};
    unsigned char *sent = memory(buffer), *received = memory(buffer);
    for (size_t i = 0; i < buffer; i++)
        sent[i] = (unsigned char)next_random(&chance);
    driver_open_peer(options->peer);
    across.here = device_memory(buffer);
    on_peer(take_there, &buffer);
    across.size = size;
    for (int i = 0; i < WAYS; i++) {
        const struct way *way = &ways[i];
        const char *name = small ? way->small : way->large;
        if (way->direct && !driver_may_access_peer()) {
            missing(name, "the driver gives these two GPUs no access to each other's memory");
            continue;
        }
        if (small)
            timed(name, TRIPS, 1, way->trip, 1);
        else
            figure(name, "bytes_per_second", rate_of(way->run, NULL, (double)size), BATCHES, "");
        check(way, sent, received, name);
    }
    driver_close_peer();
    device_memory_free_all();
    free(sent), free(received);
}

void measure_peer_copy(const struct options *options)
{
    size_t size = options->peer_copy_bytes / 16 * 16;
    if (*options->peer && !options->once)
        measure(options, size, size, false);
}

void measure_small_peer_copy(const struct options *options)
{
    if (!*options->peer || options->once)
        return;
    warm_for_latency();
    measure(options, SMALL, BUFFER, true);
}
