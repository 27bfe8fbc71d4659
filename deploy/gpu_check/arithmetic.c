/* Arithmetic: n-body, and the matrix products on the plain and on the tensor cores. */
#include "measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_BODIES = 64, CHECKED_PAIRS = 1 << 25, LARGEST_FACTOR = 8, FLOPS_PER_PAIR = 20 };
#define EPS2 0.01f
#define TOLERANCE 1e-3

struct bodies { float *position, *found; CUdeviceptr output; unsigned n; uint64_t seed; };

static void acceleration(const struct bodies *bodies, unsigned i, double sum[3])
{
    const float *self = bodies->position + 4 * (size_t)i;
    for (unsigned j = 0; j < bodies->n; j++) {
        const float *other = bodies->position + 4 * (size_t)j;
        double d[3], square = (double)EPS2;
        for (int axis = 0; axis < 3; axis++) {
            d[axis] = (double)other[axis] - (double)self[axis];
            square += d[axis] * d[axis];
        }
        double factor = (double)other[3] / (square * sqrt(square));
        for (int axis = 0; axis < 3; axis++)
            sum[axis] += factor * d[axis];
    }
}

/* Every element is written; as many as there is time for, at random, are right as vectors. */
static void check_bodies(void *context, const char *variant)
{
    struct bodies *bodies = context;
    struct chance chance = {bodies->seed};
    download(bodies->found, bodies->output, 16 * (size_t)bodies->n);
    for (size_t i = 0; i < 4 * (size_t)bodies->n; i++)
        if (!isfinite(bodies->found[i]) || (i % 4 == 3 && bodies->found[i] != 0))
            fail("%s%s: component %zu of body %zu is %g", kernel_prefix, variant, i % 4, i / 4,
                 (double)bodies->found[i]);
    unsigned count = CHECKED_PAIRS / bodies->n;
    bool all = count >= bodies->n;
    count = all ? bodies->n : count < LEAST_BODIES ? LEAST_BODIES : count;
    for (unsigned k = 0; k < count; k++) {
        unsigned i = all ? k : (unsigned)(next_random(&chance) % bodies->n);
        double right[3] = {0}, size = 0, error = 0;
        acceleration(bodies, i, right);
        for (int axis = 0; axis < 3; axis++) {
            double off = (double)bodies->found[4 * (size_t)i + (size_t)axis] - right[axis];
            size += right[axis] * right[axis];
            error += off * off;
        }
        if (!(sqrt(error) <= TOLERANCE * sqrt(size)))
            fail("%s%s: body %u is off by %g of its acceleration", kernel_prefix, variant, i,
                 sqrt(error / size));
    }
}

void measure_nbody(const struct options *options)
{
    unsigned n = options->bodies;
    size_t bytes = 16 * (size_t)n;
    struct chance chance = {options->seed};
    struct bodies bodies = {memory(bytes), memory(bytes), 0, n, options->seed};
    for (size_t i = 0; i < 4 * (size_t)n; i++)
        bodies.position[i] = (float)(next_random(&chance) >> 40) / (float)(1 << 24);
    CUdeviceptr position = device_memory(bytes);
    bodies.output = device_memory(bytes);
    upload(position, bodies.position, bytes);
    float eps2 = EPS2;
    struct item item = {
        .name = "nbody", .unit = "flops_per_second", .n = n,
        .work = FLOPS_PER_PAIR * (double)n * n,
        .parameters = {&position, &bodies.output, &n, &eps2},
        .output = bodies.output, .output_bytes = bytes, .check = check_bodies, .context = &bodies,
    };
    run_item(&item, options);
    device_memory_free_all();
    free(bodies.position), free(bodies.found);
}

/* C = A B with small integers: every sum is exact in FP32, whatever its order. */
struct product { signed char *a, *b; float *found; CUdeviceptr output; unsigned n; uint64_t seed; };

/* Freivalds' check over all elements: C x = A (B x) for a random x, in whole numbers. A single
 * wrong element cannot pass, since no x is 0; several can with a chance of one in a thousand. */
static void check_product(void *context, const char *variant)
{
    struct product *product = context;
    size_t n = product->n;
    struct chance chance = {product->seed ^ 0x5eed};
    int64_t *x = memory(n * sizeof *x), *bx = memory(n * sizeof *bx);
    download(product->found, product->output, n * n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        x[i] = 1 + (int64_t)(next_random(&chance) % 1000);
    for (size_t i = 0; i < n; i++) {
        bx[i] = 0;
        for (size_t j = 0; j < n; j++)
            bx[i] += product->b[i * n + j] * x[j];
    }
    for (size_t i = 0; i < n; i++) {
        int64_t right = 0, found = 0;
        for (size_t j = 0; j < n; j++) {
            float element = product->found[i * n + j];
            if (!(fabsf(element) < 1 << 24) || element != (float)(int64_t)element)
                fail("%s%s: element (%zu, %zu) is %g", kernel_prefix, variant, i, j,
                     (double)element);
            right += product->a[i * n + j] * bx[j];
            found += (int64_t)element * x[j];
        }
        if (right != found)
            fail("%s%s: row %zu of the product is wrong", kernel_prefix, variant, i);
    }
    free(x), free(bx);
}

uint16_t half_of(int small)
{
    static const uint16_t halves[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400,
                                      0x4500, 0x4600, 0x4700, 0x4800};
    return (uint16_t)(halves[abs(small)] | (small < 0 ? 0x8000 : 0));
}

static CUdeviceptr factor(signed char **kept, size_t count, bool half, struct chance *chance)
{
    size_t bytes = count * (half ? 2 : 4);
    unsigned char *content = memory(bytes);
    *kept = memory(count);
    for (size_t i = 0; i < count; i++) {
        int value = small_integer(chance, LARGEST_FACTOR);
        (*kept)[i] = (signed char)value;
        if (half)
            ((uint16_t *)content)[i] = half_of(value);
        else
            ((float *)content)[i] = (float)value;
    }
    CUdeviceptr address = device_memory(bytes);
    upload(address, content, bytes);
    free(content);
    return address;
}

/* By cuBLAS where it is there, else by the first kernel; the last product is verified. */
static void loop_product(const struct item *item, const struct options *options,
                         enum cublas_kind kind, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c)
{
    enqueue run = launch_once;
    struct launch launch = {0};
    void *context = &launch;
    const char *name = "cuBLAS", *why = "not asked for";
    if (options->cublas)
        why = cublas_product(options, kind, a, b, c, (unsigned)item->n, &run, &context);
    const struct variant *at = NULL;
    while (why && (at = next_variant(item->name, at)))
        if (!at->small && prepare(&launch, at, item->n)) {
            memcpy(launch.parameters, item->parameters, sizeof launch.parameters);
            name = at->name;
            why = NULL;
        }
    if (why)
        fail("no module has a kernel for this size, and cuBLAS is not used: %s", why);
    loop(run, context, name);
    poison(item->output, item->output_bytes);
    run(context);
    synchronize();
    item->check(item->context, name);
}

static void measure_product(const struct options *options, enum cublas_kind kind, unsigned n,
                            const char *figure)
{
    size_t count = (size_t)n * n;
    struct chance chance = {options->seed};
    struct product product = {.found = memory(4 * count), .n = n, .seed = options->seed};
    CUdeviceptr a = factor(&product.a, count, kind == TENSOR, &chance);
    CUdeviceptr b = factor(&product.b, count, kind == TENSOR, &chance);
    CUdeviceptr c = product.output = device_memory(4 * count);
    struct item item = {
        .name = kind == TENSOR ? "tensor" : "matmul", .unit = "flops_per_second",
        .figure = figure, .n = n,
        .work = 2.0 * (double)count * n, .parameters = {&a, &b, &c, &n},
        .output = c, .output_bytes = 4 * count, .check = check_product, .context = &product,
    };
    if (options->loop)
        loop_product(&item, options, kind, a, b, c);
    else
        run_item(&item, options);
    if (!options->once && !options->loop && options->cublas && !figure)
        measure_cublas(options, kind, a, b, c, n, check_product, &product);
    device_memory_free_all();
    free(product.a), free(product.b), free(product.found);
}

void measure_matmul(const struct options *options)
{
    measure_product(options, SINGLE, options->matmul_n, NULL);
}

/* About n, what the wide tiles can do: of the multiples of 256 within an eighth the one whose blocks,
 * one a multiprocessor, leave the fewest idle in the last wave. */
unsigned wide_n(unsigned n, unsigned sms)
{
    unsigned best = 0;
    double fullest = 0;
    for (unsigned size = (n - n / 8 + 255) / 256 * 256; size <= n + n / 8; size += 256) {
        unsigned blocks = size / 256 * (size / 128), waves = (blocks + sms - 1) / sms;
        double full = (double)blocks / (waves * sms);
        if (full >= fullest) {
            fullest = full;
            best = size;
        }
    }
    return best;
}

void measure_tensor(const struct options *options)
{
    unsigned wide = wide_n(options->tensor_n, (unsigned)gpu.sm_count);
    measure_product(options, TENSOR, options->tensor_n, NULL);
    if (!options->once && !options->loop && wide && !every_variant_can("tensor", options->tensor_n))
        measure_product(options, TENSOR, wide, "tensor_wide");
}
