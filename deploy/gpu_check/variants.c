/* The launch shapes of every kernel that can be held against another, and how one item is run. */
#include "measure.h"

#include <stdio.h>
#include <string.h>

enum { MOST_SHARED_BYTES = 8, STATIC_LIMIT = 48 << 10 }; /* CU_FUNC_ATTRIBUTE_* */

static const struct variant variants[] = {
    {"ref_", "triad", "triad", 256, 0, 0, 256, 1, 0, false},
    {"ref_", "triad", "triad_4", 1024, 0, 0, 256, 1, 0, false},
    {"ref_", "triad", "triad_stride", 0, 0, 4, 512, 1, 0, false},
    {"ref_", "nbody", "nbody_1_256_1", 256, 0, 0, 256, 1, 0, false},
    {"ref_", "nbody", "nbody_2_128_1", 256, 0, 0, 128, 1, 0, false},
    {"ref_", "nbody", "nbody_1_64_4", 64, 0, 0, 64, 4, 0, false},
    {"ref_", "nbody", "nbody_2_64_4", 128, 0, 0, 64, 4, 0, false},
    {"ref_", "nbody", "nbody_4_64_4", 256, 0, 0, 64, 4, 0, false},
    {"ref_", "matmul", "matmul_128", 128, 128, 0, 256, 1, 0, false},
    {"ref_", "matmul", "matmul_64", 64, 64, 0, 256, 1, 0, false},
    {"ref_", "tensor", "tensor_128_128", 128, 128, 0, 256, 1, 48 << 10, false},
    {"ref_", "tensor", "tensor_128_256", 256, 128, 0, 256, 1, 96 << 10, false},
    {"ref_", "tensor", "tensor_256_128", 128, 256, 0, 256, 1, 96 << 10, false},
    {"gpud_", "triad", "triad", 256, 0, 0, 256, 1, 0, false},
    {"gpud_", "nbody", "nbody", 256, 0, 0, 256, 1, 0, false},
    {"gpud_", "matmul", "matmul_128", 128, 128, 0, 16, 16, 0, false},
    {"gpud_", "matmul", "matmul", 64, 64, 0, 16, 16, 0, false},
    {"gpud_", "matmul", "matmul_16", 16, 16, 0, 16, 16, 0, true},
    {"gpud_", "tensor", "matmul_tensor", 128, 128, 0, 256, 1, 0, false},
};

const struct variant *next_variant(const char *item, const struct variant *last)
{
    const struct variant *end = variants + sizeof variants / sizeof *variants;
    for (const struct variant *at = last ? last + 1 : variants; at < end; at++)
        if (!strcmp(at->item, item) && !strcmp(at->prefix, kernel_prefix))
            return at;
    return NULL;
}

static bool can(const struct variant *variant, size_t n)
{
    return !variant->per_block_y || (n % variant->per_block == 0 && n % variant->per_block_y == 0);
}

bool every_variant_can(const char *item, size_t n)
{
    for (const struct variant *at = NULL; (at = next_variant(item, at));)
        if (!can(at, n))
            return false;
    return true;
}

bool prepare(struct launch *launch, const struct variant *variant, size_t n)
{
    *launch = (struct launch){
        .function = optional_kernel(variant->name),
        .grid_y = 1,
        .block_x = variant->block_x,
        .block_y = variant->block_y,
        .shared_bytes = variant->shared_bytes,
    };
    if (!launch->function || !can(variant, n))
        return false;
    if (variant->blocks_per_sm) {
        launch->grid_x = variant->blocks_per_sm * (unsigned)gpu.sm_count;
    } else if (variant->per_block_y) {
        launch->grid_x = (unsigned)(n / variant->per_block);
        launch->grid_y = (unsigned)(n / variant->per_block_y);
    } else {
        launch->grid_x = (unsigned)((n + variant->per_block - 1) / variant->per_block);
    }
    if (variant->shared_bytes > STATIC_LIMIT) {
        int wanted = (int)variant->shared_bytes;
        if (!cu.cuFuncSetAttribute
            || cu.cuFuncSetAttribute(launch->function, MOST_SHARED_BYTES, wanted))
            return false; /* this GPU has less shared memory */
    }
    return true;
}

void launch_once(void *context)
{
    struct launch *launch = context;
    CHECK(cuLaunchKernel, launch->function, launch->grid_x, launch->grid_y, 1, launch->block_x,
          launch->block_y, 1, launch->shared_bytes, gpu.stream, launch->parameters, NULL);
}

void run_item(const struct item *item, const struct options *options)
{
    struct rate best = {0};
    const char *fastest = NULL;
    for (const struct variant *at = NULL; (at = next_variant(item->name, at));) {
        struct launch launch;
        if ((at->small && !options->once) || !prepare(&launch, at, item->n))
            continue;
        memcpy(launch.parameters, item->parameters, sizeof launch.parameters);
        if (!options->once) {
            struct rate rate = rate_of(launch_once, &launch, item->work);
            if (rate.median > best.median) {
                best = rate;
                fastest = at->name;
            }
        }
        poison(item->output, item->output_bytes);
        launch_once(&launch);
        synchronize();
        item->check(item->context, at->name);
        verified(at->name);
        fastest = fastest ? fastest : at->name;
    }
    const char *name = item->figure ? item->figure : item->name;
    if (!fastest)
        missing(name, "no module has a kernel for this size and this GPU");
    else if (!options->once)
        figure(name, item->unit, best, BATCHES, fastest);
}
