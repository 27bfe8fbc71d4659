/* Processes of one script that are not all alike: a scatter from one to the next. */
#include "cuda_api.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

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

double noise(void)
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
