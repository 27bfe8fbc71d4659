/* virtual_clock.so: a monotonic clock for one process, moved by what the process does and not by time.
 *
 * Loaded with LD_PRELOAD, it answers clock_gettime(CLOCK_MONOTONIC), from which Python's perf_counter
 * and monotonic come, and abs, which is the null call of gpud. The stand-in libcuda.so.1 moves it on
 * by what its calls cost and to where its GPU has done its work. A result is the same on every machine,
 * and a minute of it takes no time.
 *
 * VIRTUAL_CLOCK="CALL READING [EVERY SLOW]", whole nanoseconds: what a call of C costs in the caller's
 * language, abs and every function of the stand-in, and what a reading of the clock costs; each EVERYth
 * call costs SLOW more, as one does that the machine interrupts.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define SECOND INT64_C(1000000000)

static int64_t moment = SECOND;
static long call_ns, reading_ns, every, slow_ns, calls;

__attribute__((constructor)) static void prepare(void)
{
    const char *text = getenv("VIRTUAL_CLOCK");
    if (!text || sscanf(text, "%ld %ld %ld %ld", &call_ns, &reading_ns, &every, &slow_ns) < 2) {
        fprintf(stderr, "virtual_clock.so: VIRTUAL_CLOCK is not \"CALL READING [EVERY SLOW]\"\n");
        abort();
    }
}

EXPORT int64_t virtual_clock_now(void)
{
    return moment;
}

EXPORT void virtual_clock_to(int64_t ns)
{
    if (moment < ns)
        moment = ns;
}

EXPORT void virtual_clock_call(void)
{
    moment += call_ns;
    if (every && ++calls % every == 0)
        moment += slow_ns;
}

EXPORT int abs(int value)
{
    virtual_clock_call();
    return value < 0 ? -value : value;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, time);
    moment += reading_ns;
    *time = (struct timespec){.tv_sec = moment / SECOND, .tv_nsec = moment % SECOND};
    return 0;
}
