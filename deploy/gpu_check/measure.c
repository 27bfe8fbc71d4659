#define _GNU_SOURCE
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_FIGURES = 64 };

static struct { char name[64], unit[24], variant[64]; struct rate rate; int count; }
figures[MOST_FIGURES];
static struct { char name[64], why[256]; } gaps[MOST_FIGURES];
static char checked[MOST_FIGURES][64];
static int figure_count, gap_count, checked_count;

int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int by_size(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

int64_t median_ns(int64_t *values, long count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

int64_t quantile_ns(const int64_t *sorted, long count, double q)
{
    return sorted[(long)(q * (double)(count - 1))];
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void *memory(size_t size)
{
    void *given = malloc(size);
    if (!given)
        fail("the host has no %zu bytes of memory left", size);
    return given;
}

uint64_t next_random(struct chance *chance) /* splitmix64 */
{
    uint64_t z = chance->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int small_integer(struct chance *chance, int most)
{
    return (int)((next_random(chance) >> 32) * (uint64_t)(2 * most + 1) >> 32) - most;
}

void figure(const char *name, const char *unit, struct rate rate, int count, const char *variant)
{
    if (figure_count == MOST_FIGURES)
        fail("more than %d figures", MOST_FIGURES);
    if (!(rate.median > 0) || rate.median > 1e18)
        fail("%s: the driver's clock gives %g %s", name, rate.median, unit);
    snprintf(figures[figure_count].name, sizeof figures->name, "%s", name);
    snprintf(figures[figure_count].unit, sizeof figures->unit, "%s", unit);
    snprintf(figures[figure_count].variant, sizeof figures->variant, "%s", variant);
    figures[figure_count].rate = rate;
    figures[figure_count++].count = count;
}

void verified(const char *what)
{
    if (checked_count == MOST_FIGURES)
        fail("more than %d kernels", MOST_FIGURES);
    snprintf(checked[checked_count++], sizeof *checked, "%s", what);
}

void missing(const char *name, const char *why)
{
    if (gap_count == MOST_FIGURES)
        fail("more than %d gaps", MOST_FIGURES);
    snprintf(gaps[gap_count].name, sizeof gaps->name, "%s", name);
    snprintf(gaps[gap_count++].why, sizeof gaps->why, "%s", why);
}

static void text(const char *value)
{
    putchar('"');
    for (const unsigned char *at = (const unsigned char *)value; *at; at++)
        if (*at == '"' || *at == '\\')
            printf("\\%c", *at);
        else if (*at < 0x20 || *at > 0x7e)
            printf("\\u%04x", *at);
        else
            putchar(*at);
    putchar('"');
}

void report(void)
{
    printf("{\"device\": {\"name\": ");
    text(gpu.name);
    printf(", \"uuid\": \"%s\", \"library\": ", gpu.uuid);
    text(gpu.library);
    printf(", \"driver_version\": %d, \"compute_capability\": \"%d.%d\", \"sm_count\": %d, "
           "\"l2_bytes\": %d, \"peak_bytes_per_second\": %.9g},\n \"figures\": {",
           gpu.driver_version, gpu.major, gpu.minor, gpu.sm_count, gpu.l2_bytes,
           gpu.peak_bytes_per_second);
    for (int i = 0; i < figure_count; i++) {
        printf("%s\n  ", i ? "," : "");
        text(figures[i].name);
        printf(": {\"unit\": \"%s\", \"median\": %.9g, \"minimum\": %.9g, \"maximum\": %.9g, "
               "\"n\": %d, \"settled\": %s, \"variant\": ", figures[i].unit, figures[i].rate.median,
               figures[i].rate.minimum, figures[i].rate.maximum, figures[i].count,
               figures[i].rate.settled ? "true" : "false");
        text(figures[i].variant);
        putchar('}');
    }
    printf("},\n \"verified\": [");
    for (int i = 0; i < checked_count; i++) {
        printf("%s", i ? ", " : "");
        text(checked[i]);
    }
    printf("],\n \"missing\": {");
    for (int i = 0; i < gap_count; i++) {
        printf("%s\n  ", i ? "," : "");
        text(gaps[i].name);
        printf(": ");
        text(gaps[i].why);
    }
    printf("}}\n");
    if (fflush(stdout))
        fail("stdout cannot be written");
}

bool host_time_counts;

double elapsed_s(enqueue run, void *context, int repeats)
{
    float milliseconds;
    int64_t begun = now_ns();
    CHECK(cuEventRecord, gpu.first_event, gpu.stream);
    for (int i = 0; i < repeats; i++)
        run(context);
    CHECK(cuEventRecord, gpu.last_event, gpu.stream);
    CHECK(cuEventSynchronize, gpu.last_event);
    CHECK(cuEventElapsedTime, &milliseconds, gpu.first_event, gpu.last_event);
    if (!(milliseconds > 0))
        fail("cuEventElapsedTime says that %d repeats took %g ms", repeats, (double)milliseconds);
    double wall_s = (double)(now_ns() - begun) * 1e-9, gpu_s = milliseconds / 1e3;
    return host_time_counts && wall_s > gpu_s ? wall_s : gpu_s;
}

int batch_size(enqueue run, void *context)
{
    elapsed_s(run, context, 1); /* the first one may load, and wakes the GPU */
    double one_s = elapsed_s(run, context, 1);
    return one_s * MOST_REPEATS <= BATCH_S ? MOST_REPEATS
           : one_s >= BATCH_S              ? 1
                                           : (int)(BATCH_S / one_s);
}

/* Say whether the batches came to agree before the time was up. */
static bool warmed(enqueue run, void *context, int repeats)
{
    double last[3] = {0}, used_s = 0;
    int64_t until = now_ns() + (int64_t)(2e9 * WARM_UP_S);
    for (int i = 0; used_s < WARM_UP_S && now_ns() < until; i++) {
        last[i % 3] = elapsed_s(run, context, LONGER * repeats);
        used_s += last[i % 3];
        double low = last[0], high = last[0];
        for (int j = 1; j < 3; j++) {
            low = last[j] < low ? last[j] : low;
            high = last[j] > high ? last[j] : high;
        }
        if (i >= 2 && high <= low * (1 + WITHIN))
            return true;
    }
    return false;
}

bool warm_up(enqueue run, void *context)
{
    bool settled = warmed(run, context, batch_size(run, context));
    synchronize();
    return settled;
}

struct rate rate_of(enqueue run, void *context, double work)
{
    double found[BATCHES];
    int repeats = batch_size(run, context);
    struct rate rate = {.settled = warmed(run, context, repeats)};
    for (int i = 0; i < BATCHES; i++)
        found[i] = repeats * work / elapsed_s(run, context, repeats);
    qsort(found, BATCHES, sizeof *found, by_value);
    rate.median = found[BATCHES / 2];
    rate.minimum = found[0];
    rate.maximum = found[BATCHES - 1];
    return rate;
}
