/* The kernels of gpud/child/kernels, in double precision and one element at a time.
 *
 * A launch shape that the kernel was not written for is refused, where a GPU would give wrong results.
 */
#include "libcuda.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct float4 { float x, y, z, w; };

CUresult refused(const struct kernel *kernel, const char *rule)
{
    fprintf(stderr, "stand-in %s: %s: %s\n", library_name, kernel->name, rule);
    return INVALID_VALUE;
}

bool shape_is(const struct launch *launch, unsigned grid_x, unsigned grid_y, unsigned block_x,
              unsigned block_y)
{
    return launch->grid[0] == grid_x && launch->grid[1] == grid_y && launch->grid[2] == 1
           && launch->block[0] == block_x && launch->block[1] == block_y && launch->block[2] == 1;
}

static CUresult run_empty(struct kernel *kernel, const struct launch *launch, double *cost_ns)
{
    *cost_ns = RATE(kernel_ns);
    return shape_is(launch, 1, 1, 1, 1) ? SUCCESS : refused(kernel, "grid 1, block 1");
}

static CUresult run_count(struct kernel *kernel, const struct launch *launch, double *cost_ns)
{
    *cost_ns = RATE(kernel_ns);
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
    *cost_ns = 1e9 * 3 * size / RATE(bytes_per_second);
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
    *cost_ns = 1e9 * 20 * (double)n * n / RATE(flops_per_second);
    return memory_submit(&work, PARAMETER(CUdeviceptr, 1));
}

static CUresult run_ring(struct kernel *kernel, const struct launch *launch, double *cost_ns)
{
    unsigned n = PARAMETER(unsigned, 1);
    if (!n || n & (n - 1))
        return refused(kernel, "n a power of two");
    *cost_ns = 1e9 * 32 * n / RATE(bytes_per_second); /* a sector of each line */
    return memory_link(PARAMETER(CUdeviceptr, 0), n, PARAMETER(unsigned, 2), PARAMETER(unsigned, 3));
}

static CUresult run_chase(struct kernel *kernel, const struct launch *launch, double *cost_ns)
{
    uint64_t size = 0, loads = PARAMETER(unsigned, 1);
    if (!shape_is(launch, 1, 1, 1, 1))
        return refused(kernel, "grid 1, block 1");
    CUresult code = memory_chase(PARAMETER(CUdeviceptr, 0), loads - kernel->corrupt, &size);
    bool fits = size <= (uint64_t)current()->l2_bytes;
    *cost_ns = (double)loads * (fits ? RATE(l2_load_ns) : RATE(dram_load_ns));
    return code;
}

static struct kernel kernels[] = {
    {"gpud_empty", "", false, -1, -1, false, 4, 0, 0, run_empty},
    {"gpud_count", "8", false, -1, -1, false, 6, 0, 0, run_count},
    {"gpud_ring", "8444", false, -1, -1, false, 12, 0, 0, run_ring},
    {"gpud_chase", "84", false, -1, -1, false, 10, 0, 0, run_chase},
    {"gpud_triad", "88844", false, -1, -1, true, 20, 0, 0, run_triad},
    {"gpud_nbody", "8844", false, -1, -1, true, 48, 4096, 0, run_nbody},
    {"gpud_matmul", "8884", false, -1, -1, false, 64, 8448, 0, run_product},
    {"gpud_matmul_16", "8884", false, -1, -1, false, 32, 4096, 0, run_product},
    {"gpud_matmul_128", "8884", false, -1, -1, true, 128, 16640, 0, run_product},
    {"gpud_matmul_tensor", "8884", false, -1, -1, true, 126, 49152, 0, run_product},
    {"gpud_matmul_fp64", "8884", false, -1, -1, true, 218, 16640, 0, run_product},
    {"gpud_matmul_tf32", "8884", false, -1, -1, true, 112, 49152, 0, run_product},
    {"gpud_matmul_bf16", "8884", false, -1, -1, true, 112, 49152, 0, run_product},
    {"gpud_matmul_int8", "8884", false, -1, -1, true, 112, 49152, 0, run_product},
    {"gpud_sums_fp32", "88844", false, -1, -1, false, 40, 0, 0, run_sums},
    {"gpud_sums_fp64", "88844", false, -1, -1, false, 40, 0, 0, run_sums},
    {"gpud_sums_fp16", "88844", false, -1, -1, false, 40, 0, 0, run_sums},
    {"gpud_sums_bf16", "88844", false, -1, -1, false, 40, 0, 0, run_sums},
    {"gpud_sums_int8", "88844", false, -1, -1, false, 40, 0, 0, run_sums},
    {"gpud_sums_int32", "88844", false, -1, -1, false, 40, 0, 0, run_sums},
};

struct kernel *kernel_named(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i].name, name))
            return &kernels[i];
    return NULL;
}
