/* What a program beside gpud does: products without end, and contexts made and given back. */
#include "measure.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

unsigned longest_s = 240;

#define TOLD_NS INT64_C(50000000)

static bool input_ended(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

void loop(enqueue run, void *context, const char *name)
{
    int repeats = batch_size(run, context);
    int64_t last = 0;
    printf("%s\n", name);
    for (unsigned long long done = 0; !input_ended();) {
        alarm(longest_s); /* of one batch, not of the whole */
        elapsed_s(run, context, repeats);
        done += (unsigned)repeats;
        if (now_ns() - last < TOLD_NS)
            continue;
        last = now_ns();
        printf("%lld %llu\n", (long long)last, done);
        if (fflush(stdout))
            fail("stdout cannot be written");
    }
}

/* One after the other, each with what gpud's child does first: ask for the memory. */
void count_contexts(unsigned count)
{
    int64_t *taken = memory(count * sizeof *taken);
    size_t first = 0, free_bytes = 0, total;
    const char *function = NULL;
    CUresult code = 0;
    unsigned made = 0;
    for (; made < count; made++) {
        CUhandle context;
        int64_t begun = now_ns();
        alarm(longest_s);
        if ((code = cu.cuDevicePrimaryCtxRetain(&context, gpu.ordinal)))
            function = "cuDevicePrimaryCtxRetain";
        else if ((code = cu.cuCtxSetCurrent(context)))
            function = "cuCtxSetCurrent";
        else if ((code = cu.cuMemGetInfo_v2(&free_bytes, &total)))
            function = "cuMemGetInfo_v2";
        else if ((code = cu.cuDevicePrimaryCtxRelease_v2(gpu.ordinal)))
            function = "cuDevicePrimaryCtxRelease_v2";
        if (code)
            break;
        first = made ? first : free_bytes;
        taken[made] = now_ns() - begun;
    }
    printf("{\"made\": %u, \"code\": %d, \"function\": \"%s\", \"free_bytes\": [%zu, %zu], "
           "\"seconds\": [", made, code, function ? function : "", first, free_bytes);
    for (unsigned i = 0; i < made; i++)
        printf("%s%.9g", i ? ", " : "", (double)taken[i] * 1e-9);
    printf("]}\n");
}
