/* What a process used of each GPU, as one JSON line a context: `ledger PATH` in the script.
 *
 * A line is written when the primary context is released, or when the library is unloaded with the
 * context still there. One that is killed writes none.
 */
#include "libcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct usage {
    double gpu_ns, longest_kernel_ns;
    long kernels, launches, contexts;
    uint64_t vram_peak, pinned, pinned_peak;
} used[MAX_DEVICES];

static int descriptor = -1;

void ledger_open(const char *path)
{
    descriptor = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0)
        script_die("ledger: cannot open '%s': %s", path, strerror(errno));
}

void ledger_context(int device)
{
    used[device].contexts++;
}

void ledger_launch(void)
{
    used[current_index()].launches++;
}

void ledger_work(double cost_ns, bool is_kernel)
{
    struct usage *usage = &used[current_index()];
    usage->gpu_ns += cost_ns;
    usage->kernels += is_kernel;
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
        "{\"gpu\": %d, \"gpu_seconds\": %.9f, \"longest_kernel_s\": %.9f, \"kernels\": %ld, "
        "\"launches\": %ld, \"vram_peak_bytes\": %llu, \"pinned_peak_bytes\": %llu, "
        "\"vram_left_bytes\": %llu, \"pinned_left_bytes\": %llu, \"contexts\": %ld}\n",
        device, usage->gpu_ns / 1e9, usage->longest_kernel_ns / 1e9, usage->kernels,
        usage->launches, (unsigned long long)usage->vram_peak,
        (unsigned long long)usage->pinned_peak,
        (unsigned long long)settings.device[device].allocated,
        (unsigned long long)usage->pinned, usage->contexts);
    if (descriptor >= 0 && write(descriptor, line, length) != length)
        script_die("ledger: %s", strerror(errno));
    *usage = (struct usage){.contexts = usage->contexts, .pinned = usage->pinned};
}

__attribute__((destructor)) static void ledger_end(void)
{
    for (int device = 0; device < MAX_DEVICES && !is_forked(); device++)
        if (settings.device[device].context)
            ledger_close(device);
}
