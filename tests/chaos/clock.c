/* clock.so: a wall clock for all programs of a distribution that ask the C library, moved by a file.
 *
 * Named in /etc/ld.so.preload. /etc/clock-offset holds one 64-bit number of nanoseconds, which is
 * added to CLOCK_REALTIME; it is mapped, so that a new number holds at once and everywhere. The
 * monotonic clocks are left alone: a guest that was paused sees just that. Programs in Go (dockerd)
 * ask the kernel and have the true clock, as have the times of files.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define SECOND INT64_C(1000000000)

static const volatile int64_t *offset;

__attribute__((constructor)) static void prepare(void)
{
    int file = open("/etc/clock-offset", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        offset = mapped;
    close(file);
}

EXPORT int clock_gettime(clockid_t which, struct timespec *result)
{
    int code = (int)syscall(SYS_clock_gettime, which, result);
    if (code == 0 && offset && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t now = (int64_t)result->tv_sec * SECOND + result->tv_nsec + *offset;
        result->tv_sec = now / SECOND;
        result->tv_nsec = now % SECOND;
    }
    return code;
}

EXPORT int gettimeofday(struct timeval *result, void *zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    result->tv_sec = now.tv_sec;
    result->tv_usec = now.tv_nsec / 1000;
    return 0;
}

EXPORT time_t time(time_t *result)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
