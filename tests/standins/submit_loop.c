/* submit_loop LIBCUDA N: the reference that gpud's submission latency is held against.
 *
 * Times N launches of an empty kernel one by one, in blocks of 250 with an untimed synchronise
 * between them, and prints two whole numbers in nanoseconds: the median launch, clock pair
 * included, and the median of a bare clock pair taken in the same loop.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BLOCK 250
#define WARM_UP 200

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry gpud_empty()\n{\n\tret;\n}\n";

static void *library;

static void *symbol(const char *name)
{
    void *address = dlsym(library, name);
    if (!address) {
        fprintf(stderr, "submit_loop: %s\n", dlerror());
        exit(2);
    }
    return address;
}

static void check(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "submit_loop: %s: error %d\n", what, code);
        exit(1);
    }
}

/* Call a driver function by name; the argument types are those of its prototype. */
#define CALL(name, types, arguments) check(((int(*) types)symbol(name)) arguments, name)

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static int64_t median(int64_t *values, long count)
{
    qsort(values, count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

int main(int argc, char **argv)
{
    long count = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (count <= 0) {
        fprintf(stderr, "usage: submit_loop LIBCUDA N\n");
        return 2;
    }
    library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "submit_loop: %s\n", dlerror());
        return 2;
    }
    void *context, *module, *function, *stream;
    CALL("cuInit", (unsigned), (0));
    CALL("cuDevicePrimaryCtxRetain", (void **, int), (&context, 0));
    CALL("cuCtxSetCurrent", (void *), (context));
    CALL("cuStreamCreate", (void **, unsigned), (&stream, 0));
    CALL("cuModuleLoadDataEx", (void **, const void *, unsigned, int *, void **),
         (&module, ptx, 0, NULL, NULL));
    CALL("cuModuleGetFunction", (void **, void *, const char *), (&function, module, "gpud_empty"));

    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **) = symbol("cuLaunchKernel");
    int (*synchronize)(void *) = symbol("cuStreamSynchronize");
    int64_t *launches = malloc(count * sizeof *launches), *pairs = malloc(count * sizeof *pairs);
    if (!launches || !pairs)
        return 2;
    for (long i = 0; i < WARM_UP; i++)
        check(launch(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
    for (long i = 0; i < count; i++) {
        if (i % BLOCK == 0)
            check(synchronize(stream), "cuStreamSynchronize");
        int64_t start = now_ns();
        int code = launch(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        int64_t end = now_ns();
        pairs[i] = now_ns() - end;
        launches[i] = end - start;
        check(code, "cuLaunchKernel");
    }
    check(synchronize(stream), "cuStreamSynchronize");
    printf("%lld %lld\n", (long long)median(launches, count), (long long)median(pairs, count));
    return 0;
}
