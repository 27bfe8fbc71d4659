/* The kernels of gpud/child/kernels, in double precision and one element at a time.
 *
 * A launch shape that the kernel was not written for is refused, where a GPU would give wrong results.
 */
#include "libcuda.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct float4 { float x, y, z, w; };

static CUresult refused(const struct kernel *kernel, const char *rule)
{
    fprintf(stderr, "stand-in %s: %s: %s\n", library_name, kernel->name, rule);
    return INVALID_VALUE;
}

static bool shape_is(const struct launch *launch, unsigned grid_x, unsigned grid_y,
                     unsigned block_x, unsigned block_y)
{
    return launch->grid[0] == grid_x && launch->grid[1] == grid_y && launch->grid[2] == 1
           && launch->block[0] == block_x && launch->block[1] == block_y && launch->block[2] == 1;
}

#define PARAMETER(type, index) (*(const type *)launch->params[index])

static CUresult run_empty(struct kernel *kernel, const struct launch *launch, double *cost_ns)
{
    *cost_ns = settings.kernel_ns;
    return shape_is(launch, 1, 1, 1, 1) ? SUCCESS : refused(kernel, "grid 1, block 1");
}

static CUresult run_count(struct kernel *kernel, const struct launch *launch, double *cost_ns)
{
    *cost_ns = settings.kernel_ns;
    return memory_add(PARAMETER(CUdeviceptr, 0), kernel->corrupt ? 2 : 1);
}

static void triad_element(const struct work *work, uint64_t index, void *out)
{
    const float *b = operand_bytes(&work->in[0]), *c = operand_bytes(&work->in[1]);
    float *a = out, scalar = (float)work->scalar;
    for (int lane = 0; lane < 4; lane++)
        a[lane] = fmaf(scalar, c[4 * index + lane], b[4 * index + lane]);
}

static CUresult run_triad(struct kernel *kernel, const struct launch *launch, double *cost_ns)
{
    uint64_t n4 = PARAMETER(unsigned, 4), size = n4 * sizeof(struct float4);
    struct work work = {
        .kernel = kernel,
        .elements = n4,
        .element_size = sizeof(struct float4),
        .in = {{.address = PARAMETER(CUdeviceptr, 1), .size = size},
               {.address = PARAMETER(CUdeviceptr, 2), .size = size}},
        .scalar = PARAMETER(float, 3),
        .element = triad_element,
    };
    if (!n4)
        return refused(kernel, "n4 above 0");
    *cost_ns = 1e9 * 3 * size / settings.bytes_per_second;
    return memory_submit(&work, PARAMETER(CUdeviceptr, 0));
}

static void nbody_element(const struct work *work, uint64_t index, void *out)
{
    const struct float4 *position = operand_bytes(&work->in[0]), *self = &position[index];
    double x = 0, y = 0, z = 0;
    for (uint64_t j = 0; j < work->n; j++) {
        double dx = (double)position[j].x - self->x, dy = (double)position[j].y - self->y;
        double dz = (double)position[j].z - self->z;
        double square = dx * dx + dy * dy + dz * dz + work->scalar;
        double factor = position[j].w / (square * sqrt(square));
        x += factor * dx;
        y += factor * dy;
        z += factor * dz;
    }
    *(struct float4 *)out = (struct float4){(float)x, (float)y, (float)z, 0};
}

static CUresult run_nbody(struct kernel *kernel, const struct launch *launch, double *cost_ns)
{
    uint64_t n = PARAMETER(unsigned, 2), size = n * sizeof(struct float4);
    struct work work = {
        .kernel = kernel,
        .elements = n,
        .element_size = sizeof(struct float4),
        .in = {{.address = PARAMETER(CUdeviceptr, 0), .size = size}},
        .scalar = PARAMETER(float, 3),
        .n = n,
        .element = nbody_element,
    };
    if (!n || n % 256 || !shape_is(launch, (unsigned)(n / 256), 1, 256, 1))
        return refused(kernel, "n a multiple of 256, grid n/256, block 256");
    *cost_ns = 1e9 * 20 * (double)n * n / settings.flops_per_second;
    return memory_submit(&work, PARAMETER(CUdeviceptr, 1));
}

static void matmul_element(const struct work *work, uint64_t index, void *out)
{
    uint64_t n = work->n;
    const float *row = (const float *)operand_bytes(&work->in[0]) + index / n * n;
    const float *column = (const float *)operand_bytes(&work->in[1]) + index % n;
    double sum = 0;
    for (uint64_t k = 0; k < n; k++)
        sum += (double)row[k] * column[k * n];
    *(float *)out = (float)sum;
}

static CUresult run_matmul(struct kernel *kernel, const struct launch *launch, double *cost_ns)
{
    uint64_t n = PARAMETER(unsigned, 3), size = n * n * sizeof(float);
    struct work work = {
        .kernel = kernel,
        .elements = n * n,
        .element_size = sizeof(float),
        .in = {{.address = PARAMETER(CUdeviceptr, 0), .size = size},
               {.address = PARAMETER(CUdeviceptr, 1), .size = size}},
        .n = n,
        .element = matmul_element,
    };
    if (!n || n % 64 || !shape_is(launch, (unsigned)(n / 64), (unsigned)(n / 64), 16, 16))
        return refused(kernel, "n a multiple of 64, grid (n/64, n/64), block (16, 16)");
    *cost_ns = 1e9 * 2 * (double)n * n * n / settings.flops_per_second;
    return memory_submit(&work, PARAMETER(CUdeviceptr, 2));
}

static struct kernel kernels[] = {
    {"gpud_empty", false, false, -1, run_empty},  {"gpud_count", true, false, -1, run_count},
    {"gpud_triad", true, false, -1, run_triad},   {"gpud_nbody", true, false, -1, run_nbody},
    {"gpud_matmul", true, false, -1, run_matmul},
};

struct kernel *kernel_named(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i].name, name))
            return &kernels[i];
    return NULL;
}
