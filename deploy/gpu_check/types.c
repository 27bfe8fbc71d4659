/* gpud's kernels for other types of numbers than FP32, once and small: for compute-sanitizer. */
#include "measure.h"

#include <stdlib.h>
#include <string.h>

enum { N = 128, PART = 64, LARGEST = 8 };

enum type { FP16, BF16, FP32, FP64, INT8, INT32, TYPES };

static const struct { const char *sums; size_t size; } types[TYPES] = {
    [FP16] = {"sums_fp16", 2}, [BF16] = {"sums_bf16", 2}, [FP32] = {"sums_fp32", 4},
    [FP64] = {"sums_fp64", 8}, [INT8] = {"sums_int8", 1}, [INT32] = {"sums_int32", 4},
};

static const struct {
    const char *name;
    enum type operand, result;
    unsigned tile, block_x, block_y;
    bool column_major; /* how it takes B */
} products[] = {
    {"matmul_fp64", FP64, FP64, 64, 8, 8, false},
    {"matmul_bf16", BF16, FP32, 128, 256, 1, true},
    {"matmul_tf32", FP32, FP32, 128, 256, 1, true},
    {"matmul_int8", INT8, INT32, 128, 256, 1, true},
};

static void write_number(void *to, enum type type, int value)
{
    union { uint16_t half; int8_t narrow; int32_t whole; uint32_t bits; float real; double wide; } form;
    switch (type) {
    case FP16: form.half = half_of(value); break;
    case BF16: /* the upper half of FP32 */
        form.real = (float)value;
        form.half = (uint16_t)(form.bits >> 16);
        break;
    case FP32: form.real = (float)value; break;
    case FP64: form.wide = value; break;
    case INT8: form.narrow = (int8_t)value; break;
    default: form.whole = value;
    }
    memcpy(to, &form, types[type].size);
}

/* Random whole numbers on the host, and the same on the GPU as a type. */
static CUdeviceptr matrix(int *kept, enum type type, struct chance *chance)
{
    size_t size = types[type].size;
    unsigned char *content = memory(N * N * size);
    for (size_t i = 0; i < N * N; i++) {
        kept[i] = small_integer(chance, LARGEST);
        write_number(content + i * size, type, kept[i]);
    }
    CUdeviceptr address = device_memory(N * N * size);
    upload(address, content, N * N * size);
    free(content);
    return address;
}

/* Each number of the product is compared, bit by bit. */
static void multiply(size_t index, struct chance *chance)
{
    enum type result = products[index].result;
    bool turned = products[index].column_major;
    size_t size = types[result].size, bytes = N * N * size;
    int *left = memory(N * N * sizeof *left), *right = memory(N * N * sizeof *right);
    CUdeviceptr a = matrix(left, products[index].operand, chance);
    CUdeviceptr b = matrix(right, products[index].operand, chance);
    CUdeviceptr c = device_memory(bytes);
    unsigned n = N, tile = products[index].tile;
    unsigned char *found = memory(bytes), expected[8];
    struct launch launch = {kernel(products[index].name), N / tile, N / tile,
                            products[index].block_x, products[index].block_y, 0, {&a, &b, &c, &n}};
    poison(c, bytes);
    launch_once(&launch);
    download(found, c, bytes);
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            int sum = 0;
            for (size_t k = 0; k < N; k++)
                sum += left[i * N + k] * right[turned ? j * N + k : k * N + j];
            write_number(expected, result, sum);
            if (memcmp(found + (i * N + j) * size, expected, size))
                fail("%s%s: element (%zu, %zu) is wrong", kernel_prefix, products[index].name, i, j);
        }
    verified(products[index].name);
    free(left), free(right), free(found);
}

static void add_up(enum type type, struct chance *chance)
{
    int *numbers = memory(N * N * sizeof *numbers);
    uint64_t weights[N], sums[N] = {0};
    for (size_t i = 0; i < N; i++)
        weights[i] = next_random(chance);
    CUdeviceptr from = matrix(numbers, type, chance);
    CUdeviceptr weight = device_memory(sizeof weights), to = device_memory(sizeof sums);
    unsigned across = N, along = 1;
    struct launch launch = {kernel(types[type].sums), N / PART, N / PART, PART, 1, 0,
                            {&from, &weight, &to, &across, &along}};
    upload(weight, weights, sizeof weights);
    upload(to, sums, sizeof sums);
    launch_once(&launch);
    download(sums, to, sizeof sums);
    for (size_t i = 0; i < N; i++) {
        uint64_t sum = 0;
        for (size_t j = 0; j < N; j++)
            sum += weights[j] * (uint64_t)numbers[i * N + j];
        if (sums[i] != sum)
            fail("%s%s: sum %zu is wrong", kernel_prefix, types[type].sums, i);
    }
    verified(types[type].sums);
    free(numbers);
}

void launch_types(const struct options *options)
{
    struct chance chance = {options->seed};
    for (size_t i = 0; options->once && i < sizeof products / sizeof *products; i++)
        if (optional_kernel(products[i].name)) /* an older GPU cannot have all */
            multiply(i, &chance);
    for (enum type type = 0; options->once && type < TYPES; type++)
        if (optional_kernel(types[type].sums))
            add_up(type, &chance);
    device_memory_free_all();
}
