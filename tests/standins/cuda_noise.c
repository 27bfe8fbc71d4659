/* Processes of one script that are not all alike: a scatter from one to the next, visits to a slow
 * power state, and spells in which somebody else keeps the driver busy. */
#include "cuda_api.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum sequence { FIRST_NORMAL, SECOND_NORMAL, VISITS, BUSY, WITHIN, SEQUENCES = 8 };

static int places = -1; /* a file that has one byte for each process so far */
static uint64_t seed;
static double sigma;
static struct spells { double share, runs, factor; } visits, busy;

void noise_open(int64_t chosen, double scatter, const char *path)
{
    places = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (places < 0)
        script_die("noise: cannot open '%s': %s", path, strerror(errno));
    seed = (uint64_t)chosen;
    sigma = scatter;
}

void noise_spells(const char *key, double share, double runs, double factor)
{
    struct spells *spells = !strcmp(key, "noise_visits") ? &visits : &busy;
    if (places < 0)
        script_die("%s: say `noise` first", key);
    *spells = (struct spells){share, runs, factor};
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

/* Spells begin by chance, and end with the chance that makes their mean length `runs`. */
static bool in_spell(const struct spells *spells, uint64_t place, enum sequence sequence)
{
    if (!spells->share)
        return false;
    double ends = 1 / spells->runs;
    double begins = fmin(ends * spells->share / (1 - spells->share), 1);
    bool within = of_place(0, sequence) < spells->share;
    for (uint64_t i = 1; i <= place; i++)
        within = of_place(i, sequence) < (within ? 1 - ends : begins);
    return within;
}

double noise(void)
{
    static double level = 1, within;
    static bool chosen;
    static uint64_t calls;
    if (places < 0)
        return 1;
    if (!chosen) {
        uint64_t place = own_place();
        double radius = sqrt(-2 * log1p(-of_place(place, FIRST_NORMAL))); /* Box and Muller */
        level = exp(sigma * radius * cos(2 * M_PI * of_place(place, SECOND_NORMAL)));
        if (in_spell(&visits, place, VISITS))
            level *= visits.factor;
        if (in_spell(&busy, place, BUSY))
            within = busy.factor - 1;
        chosen = true;
    }
    return level * (1 + within * of_place(calls++, WITHIN));
}
