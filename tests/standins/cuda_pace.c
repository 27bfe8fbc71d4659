/* How long each launch takes in real time, and how much slower a GPU computes that just woke up. */
#include "cuda_api.h"

#include <math.h>

#define TAIL_SHAPE 1.5 /* of the Pareto distribution: a mean, and no variance */
#define TAIL_LIMIT 100 /* times its scale, so that no test waits for ever */

static uint64_t launches, kernels; /* of this process so far */

/* splitmix64 of a counter */
double drawn(uint64_t number)
{
    uint64_t bits = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((bits ^ bits >> 31) >> 11) * 0x1p-53;
}

static double uniform(uint64_t index, uint64_t sequence)
{
    return drawn(3 * index + sequence);
}

static int64_t tail(double share, double scale_ns)
{
    double excess = pow(share, -1 / TAIL_SHAPE) - 1; /* share is above 0 */
    return (int64_t)(scale_ns * fmin(excess, TAIL_LIMIT));
}

static int64_t usual_duration(void)
{
    uint64_t index = launches++;
    if (!index && settings.first_launch_ns)
        return settings.first_launch_ns;
    if (index < (uint64_t)settings.idle_launches)
        return settings.idle_launch_ns;
    int64_t usual = current()->launch_ns ? current()->launch_ns : settings.launch_ns;
    if (settings.second_share && uniform(index, 0) < settings.second_share)
        return settings.launch_ns_second;
    double place = settings.tail_share ? uniform(index, 1) : 1;
    if (place >= settings.tail_share)
        return usual;
    return usual + tail(1 - place / settings.tail_share, settings.tail_ns);
}

int64_t launch_duration(void)
{
    return (int64_t)((double)usual_duration() * noise());
}

int64_t graph_duration(size_t nodes)
{
    int64_t usual = settings.graph_launch_ns + (int64_t)nodes * settings.graph_node_ns;
    return (int64_t)((double)usual * noise());
}

double kernel_slowdown(void)
{
    uint64_t index = kernels++, last = (uint64_t)settings.warmup_kernels;
    double cold = index < last ? 1 - (double)index / (double)last : 0;
    return 1 + cold * (settings.warmup_factor - 1);
}
