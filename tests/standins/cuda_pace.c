/* How long each launch takes in real time, and how much slower a GPU computes that just woke up. */
#include "libcuda.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define TAIL_SHAPE 1.5 /* of the Pareto distribution: a mean, and no variance */
#define TAIL_LIMIT 100 /* times its scale, so that no test waits for ever */

static uint64_t launches, kernels; /* of this process so far */

/* splitmix64 of a counter: in [0, 1), and the same in every process */
static double drawn(uint64_t number)
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

/* Processes of one script that are not all alike: a scatter from one to the next. */
enum sequence { FIRST_NORMAL, SECOND_NORMAL, SEQUENCES = 8 };

static int places = -1; /* a file that has one byte for each process so far */
static uint64_t seed;
static double sigma;

void noise_open(int64_t chosen, double scatter, const char *path)
{
    places = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (places < 0)
        script_die("noise: cannot open '%s': %s", path, strerror(errno));
    seed = (uint64_t)chosen;
    sigma = scatter;
}

/* Appending moves the offset to the end of what was written, so no two processes share a place. */
static uint64_t own_place(void)
{
    if (write(places, ".", 1) != 1)
        script_die("noise: %s", strerror(errno));
    return (uint64_t)lseek(places, 0, SEEK_CUR) - 1;
}

static double of_place(uint64_t place, enum sequence sequence)
{
    return drawn((seed + 1) << 32 | (SEQUENCES * place + sequence));
}

static double noise(void)
{
    static double level;
    if (places < 0)
        return 1;
    if (!level) {
        uint64_t place = own_place();
        double radius = sqrt(-2 * log1p(-of_place(place, FIRST_NORMAL))); /* Box and Muller */
        level = exp(sigma * radius * cos(2 * M_PI * of_place(place, SECOND_NORMAL)));
    }
    return level;
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
