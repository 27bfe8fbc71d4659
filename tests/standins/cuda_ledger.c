/* What a process used of each GPU, as one JSON line a context: `ledger PATH` in the script.
 *
 * A line is written when the primary context is released. `compute_seconds` are those of the
 * processor that went into the GPU's own work, which no driver spends.
 */
#include "libcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct usage {
    double gpu_ns, longest_kernel_ns;
    uint64_t vram_peak, pinned, pinned_peak;
} used[MAX_DEVICES];

static int descriptor = -1;
static int64_t compute_ns;
static int computing; /* functions that compute, one within the other: the outermost counts */

static int64_t processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t ledger_compute(void)
{
    return descriptor < 0 || computing++ ? 0 : processor_ns();
}

void ledger_computed(const int64_t *begun)
{
    if (descriptor >= 0 && !--computing)
        compute_ns += processor_ns() - *begun;
}

void ledger_open(const char *path)
{
    descriptor = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0)
        script_die("ledger: cannot open '%s': %s", path, strerror(errno));
}

void ledger_work(double cost_ns, bool is_kernel)
{
    ledger_work_on(current_index(), cost_ns, is_kernel);
}

void ledger_work_on(int device, double cost_ns, bool is_kernel)
{
    struct usage *usage = &used[device];
    usage->gpu_ns += cost_ns;
    if (is_kernel && cost_ns > usage->longest_kernel_ns)
        usage->longest_kernel_ns = cost_ns;
}

void ledger_memory(void)
{
    struct usage *usage = &used[current_index()];
    if (current()->allocated > usage->vram_peak)
        usage->vram_peak = current()->allocated;
}

void ledger_pinned(int device, int64_t change)
{
    struct usage *usage = &used[device];
    usage->pinned += change;
    if (usage->pinned > usage->pinned_peak)
        usage->pinned_peak = usage->pinned;
}

void ledger_close(int device)
{
    struct usage *usage = &used[device];
    char line[512];
    int length = snprintf(
        line, sizeof line,
        "{\"gpu\": %d, \"gpu_seconds\": %.9f, \"longest_kernel_s\": %.9f, "
        "\"vram_peak_bytes\": %llu, \"pinned_peak_bytes\": %llu, "
        "\"vram_left_bytes\": %llu, \"pinned_left_bytes\": %llu, \"compute_seconds\": %.9f}\n",
        device, usage->gpu_ns / 1e9, usage->longest_kernel_ns / 1e9,
        (unsigned long long)usage->vram_peak, (unsigned long long)usage->pinned_peak,
        (unsigned long long)settings.device[device].allocated, (unsigned long long)usage->pinned,
        compute_ns / 1e9);
    if (descriptor >= 0 && write(descriptor, line, length) != length)
        script_die("ledger: %s", strerror(errno));
    *usage = (struct usage){.pinned = usage->pinned};
    compute_ns = 0;
}
