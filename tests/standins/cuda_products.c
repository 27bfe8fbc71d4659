/* Matrix products in every type of gpud/child/kernels, and the weighted sums that check them.
 *
 * Sums of a product that nobody has read are those of its operands: A (B x) is (A B) x, in whole
 * numbers that wrap round too. So a product of billions of flops is checked without being computed,
 * and what the script spoils in it is added to the sums.
 */
#include "libcuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Adds to sums[p], for each q, weights[q] times the element at p * across + q * along. */
typedef void (*add_sums)(const void *matrix, const uint64_t *weights, uint64_t *sums, uint64_t n,
                         uint64_t across, uint64_t along);

struct product {
    const char *kernel;
    unsigned tile, width, height; /* of a block: elements it computes along a side, and threads */
    uint64_t operand_size, result_size;
    size_t rate; /* in struct rates */
    bool column_major; /* B */
    bool whole; /* the result is int32 */
    void (*element)(const struct work *work, uint64_t index, void *out);
    add_sums add;
};

/* IEEE 754 binary16 to binary32; every half is a float. */
static float from_half(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                 : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                                : ldexpf((float)fraction, -24);
    return half >> 15 ? -size : size;
}

static float of_half(uint16_t bits)
{
    static float halves[1 << 16];
    if (!halves[1])
        for (unsigned each = 0; each < 1 << 16; each++)
            halves[each] = from_half((uint16_t)each);
    return halves[bits];
}

static float from_bf16(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

#define ITSELF(value) (value)
#define HALF(value) of_half(value)
#define NO_WHOLE_NUMBER (INT64_C(1) << 30)

static int64_t whole(double value)
{
    return value > -0x1p31 && value < 0x1p31 && (double)(int32_t)value == value ? (int32_t)value
                                                                               : NO_WHOLE_NUMBER;
}

#define ADD(name, type, value)                                                                     \
    static void name(const void *matrix, const uint64_t *weights, uint64_t *sums, uint64_t n,      \
                     uint64_t across, uint64_t along)                                              \
    {                                                                                              \
        const type *from = matrix;                                                                 \
        if (along == 1)                                                                            \
            for (uint64_t p = 0; p < n; p++)                                                       \
                for (uint64_t q = 0; q < n; q++)                                                   \
                    sums[p] += weights[q] * (uint64_t)whole(value(from[p * across + q]));          \
        else                                                                                       \
            for (uint64_t q = 0; q < n; q++)                                                       \
                for (uint64_t p = 0; p < n; p++)                                                   \
                    sums[p] += weights[q] * (uint64_t)whole(value(from[p * across + q * along]));  \
    }

ADD(add_fp32, float, ITSELF)
ADD(add_fp64, double, ITSELF)
ADD(add_fp16, uint16_t, HALF)
ADD(add_bf16, uint16_t, from_bf16)
ADD(add_int8, int8_t, ITSELF)
ADD(add_int32, int32_t, ITSELF)

/* `down` and `right`: elements of B from one row, and from one column, to the next. */
#define ELEMENT(name, operand, result, value, down, right)                                         \
    static void name(const struct work *work, uint64_t index, void *out)                           \
    {                                                                                              \
        uint64_t n = work->n;                                                                      \
        const operand *row = (const operand *)operand_bytes(&work->in[0]) + index / n * n;         \
        const operand *column =                                                                    \
            (const operand *)operand_bytes(&work->in[1]) + index % n * (right);                    \
        double sum = 0;                                                                            \
        for (uint64_t k = 0; k < n; k++)                                                           \
            sum += (double)value(row[k]) * value(column[k * (down)]);                              \
        *(result *)out = (result)sum;                                                              \
    }

ELEMENT(fp32_element, float, float, ITSELF, n, 1)
ELEMENT(fp64_element, double, double, ITSELF, n, 1)
ELEMENT(fp16_element, uint16_t, float, HALF, n, 1)
ELEMENT(tf32_element, float, float, ITSELF, 1, n)
ELEMENT(bf16_element, uint16_t, float, from_bf16, 1, n)
ELEMENT(int8_element, int8_t, int32_t, ITSELF, 1, n)

#define OF(rate) offsetof(struct rates, rate)

static const struct product products[] = {
    {"gpud_matmul", 64, 16, 16, 4, 4, OF(flops_per_second), false, false, fp32_element, add_fp32},
    {"gpud_matmul_16", 16, 16, 16, 4, 4, OF(flops_per_second), false, false, fp32_element, add_fp32},
    {"gpud_matmul_128", 128, 16, 16, 4, 4, OF(flops_per_second), false, false, fp32_element, add_fp32},
    {"gpud_matmul_tensor", 128, 256, 1, 2, 4, OF(tensor_flops_per_second), false, false, fp16_element,
     add_fp16},
    {"gpud_matmul_fp64", 64, 8, 8, 8, 8, OF(fp64_flops_per_second), false, false, fp64_element,
     add_fp64},
    {"gpud_matmul_tf32", 128, 256, 1, 4, 4, OF(tf32_flops_per_second), true, false, tf32_element,
     add_fp32},
    {"gpud_matmul_bf16", 128, 256, 1, 2, 4, OF(bf16_flops_per_second), true, false, bf16_element,
     add_bf16},
    {"gpud_matmul_int8", 128, 256, 1, 1, 4, OF(int8_operations_per_second), true, true, int8_element,
     add_int8},
};

static const struct { const char *kernel; uint64_t size; add_sums add; } sums_of[] = {
    {"gpud_sums_fp32", 4, add_fp32}, {"gpud_sums_fp64", 8, add_fp64}, {"gpud_sums_fp16", 2, add_fp16},
    {"gpud_sums_bf16", 2, add_bf16}, {"gpud_sums_int8", 1, add_int8}, {"gpud_sums_int32", 4, add_int32},
};

static double rate_of(const struct product *product)
{
    double own = *(const double *)((const char *)&current()->rates + product->rate);
    return own ? own : *(const double *)((const char *)&settings.rates + product->rate);
}

CUresult run_product(struct kernel *kernel, const struct launch *launch, double *cost_ns)
{
    const struct product *product = products;
    while (strcmp(product->kernel, kernel->name))
        product++;
    uint64_t n = PARAMETER(unsigned, 3), size = n * n * product->operand_size;
    struct work work = {
        .kernel = kernel,
        .elements = n * n,
        .element_size = product->result_size,
        .in = {{.address = PARAMETER(CUdeviceptr, 0), .size = size},
               {.address = PARAMETER(CUdeviceptr, 1), .size = size}},
        .n = n,
        .element = product->element,
        .product = product,
    };
    unsigned tiles = (unsigned)(n / product->tile);
    if (!n || n % product->tile || !shape_is(launch, tiles, tiles, product->width, product->height))
        return refused(kernel, "n a multiple of the tile, one block a tile, block (16, 16), "
                               "(8, 8) for FP64, or 256 for tensor cores");
    *cost_ns = 1e9 * 2 * (double)n * n * n / rate_of(product);
    return memory_submit(&work, PARAMETER(CUdeviceptr, 2));
}

bool work_spoils(const struct work *work, uint64_t index, uint64_t first)
{
    const struct kernel *kernel = work->kernel;
    if (!kernel->corrupt)
        return false;
    if (work->product && kernel->corrupt_block >= 0) {
        uint64_t tile = work->product->tile, n = work->n;
        return index / n / tile * (n / tile) + index % n / tile == (uint64_t)kernel->corrupt_block;
    }
    return index == (kernel->corrupt_element < 0 ? first : (uint64_t)kernel->corrupt_element);
}

void work_spoil(const struct work *work, void *element)
{
    if (work->element_size == sizeof(double))
        *(double *)element = 2 * *(double *)element + 1;
    else if (work->product && work->product->whole)
        *(int32_t *)element = 2 * *(int32_t *)element + 1;
    else
        *(float *)element = 2 * *(float *)element + 1;
}

/* What the script spoils, on top of the sums of the product as it should be. */
static void add_spoilt(const struct work *work, const uint64_t *weights, uint64_t *sums, bool columns)
{
    for (uint64_t index = 0; work->kernel->corrupt && index < work->elements; index++) {
        if (!work_spoils(work, index, 0))
            continue;
        union { float single; double twice; int32_t whole; } right, wrong;
        work->element(work, index, &right);
        wrong = right;
        work_spoil(work, &wrong);
        double change = work->product->whole ? (double)wrong.whole - right.whole
                        : work->element_size == sizeof(double) ? wrong.twice - right.twice
                                                               : (double)wrong.single - right.single;
        uint64_t row = index / work->n, column = index % work->n;
        sums[columns ? column : row] += weights[columns ? row : column] * (uint64_t)(int64_t)change;
    }
}

static void add_product(const struct work *work, const uint64_t *weights, uint64_t *sums, bool columns)
{
    const struct product *product = work->product;
    uint64_t n = work->n, down = product->column_major ? 1 : n, right = product->column_major ? n : 1;
    const void *a = operand_bytes(&work->in[0]), *b = operand_bytes(&work->in[1]);
    uint64_t *middle = calloc(n, sizeof *middle);
    if (!middle)
        script_die("out of host memory");
    if (columns) {
        product->add(a, weights, middle, n, 1, n);
        product->add(b, middle, sums, n, right, down);
    } else {
        product->add(b, weights, middle, n, down, right);
        product->add(a, middle, sums, n, n, 1);
    }
    free(middle);
    add_spoilt(work, weights, sums, columns);
}

CUresult run_sums(struct kernel *kernel, const struct launch *launch, double *cost_ns)
{
    COMPUTING;
    size_t type = 0;
    while (strcmp(sums_of[type].kernel, kernel->name))
        type++;
    uint64_t n = (uint64_t)launch->grid[0] * 64, size = n * n * sums_of[type].size;
    unsigned parts = launch->grid[0], across = PARAMETER(unsigned, 3), along = PARAMETER(unsigned, 4);
    CUdeviceptr matrix = PARAMETER(CUdeviceptr, 0), into = PARAMETER(CUdeviceptr, 2);
    bool columns = across == 1 && along == n;
    if (!shape_is(launch, parts, parts, 64, 1) || (!columns && (across != n || along != 1)))
        return refused(kernel, "n a multiple of 64, grid (n / 64, n / 64), block 64, steps 1 and n");
    *cost_ns = 1e9 * (double)size / RATE(bytes_per_second);
    const struct work *pending = memory_pending(matrix, size);
    bool product = pending && pending->product && pending->n == n;
    const void *elements = product ? NULL : memory_bytes(matrix, size);
    const void *weights = memory_bytes(PARAMETER(CUdeviceptr, 1), n * sizeof(uint64_t));
    const void *before = memory_bytes(into, n * sizeof(uint64_t));
    if ((!product && !elements) || !weights || !before)
        return ILLEGAL_ADDRESS;
    uint64_t *sums = malloc(n * sizeof *sums);
    if (!sums)
        script_die("out of host memory");
    memcpy(sums, before, n * sizeof *sums);
    if (product)
        add_product(pending, weights, sums, columns);
    else
        sums_of[type].add(elements, weights, sums, n, across, along);
    sums[0] += kernel->corrupt;
    CUresult code = memory_write(into, sums, n * sizeof *sums);
    free(sums);
    return code;
}
