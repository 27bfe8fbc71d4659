/* Work on a stream of the stand-in libcuda.so.1: done at once, and timed by its clock. */
#include "libcuda.h"

#include <string.h>

static CUresult run_kernel(const struct operation *operation, double *cost_ns)
{
    void *params[MAX_PARAMETERS];
    for (int i = 0; i < MAX_PARAMETERS; i++)
        params[i] = (void *)&operation->values[i];
    struct launch launch = {.params = params};
    memcpy(launch.grid, operation->grid, sizeof launch.grid);
    memcpy(launch.block, operation->block, sizeof launch.block);
    CUresult code = operation->kernel->run(operation->kernel, &launch, cost_ns);
    if (code != ILLEGAL_ADDRESS)
        return code;
    current()->sticky = code; /* the launch itself succeeds; everything after it fails */
    return SUCCESS;
}

CUresult submit(CUstream stream, const struct operation *operation, int64_t ready_ns)
{
    double cost_ns = 0, *clock = clock_of(stream);
    REQUIRE(clock, INVALID_HANDLE);
    clock_reaches(clock, ready_ns);
    CUresult code = operation->kernel ? run_kernel(operation, &cost_ns)
                                      : copy_run(&operation->copy, &cost_ns);
    REQUIRE(!code, code);
    if (operation->kernel) {
        double share = clock_share();
        cost_ns *= kernel_slowdown() * compiled_slowdown(operation->pinned) / share;
        if (operation->kernel->stamps)
            stamp(operation->stamps, *clock, cost_ns, share);
    }
    *clock += cost_ns;
    ledger_work(cost_ns, operation->kernel != NULL);
    return SUCCESS;
}

CUresult kernel_operation(CUfunction handle, const unsigned grid[3], const unsigned block[3],
                          unsigned shared_bytes, void **params, void **extra,
                          struct operation *operation)
{
    const struct object *function = object_find(FUNCTION, handle);
    REQUIRE(function, INVALID_HANDLE);
    REQUIRE(function->kernel && !extra, NOT_SUPPORTED);
    const struct object *module = object_find(MODULE, (void *)(uintptr_t)function->module);
    REQUIRE(module, INVALID_HANDLE);
    const char *sizes = function->kernel->parameters;
    REQUIRE(params || !*sizes, INVALID_VALUE);
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    REQUIRE(grid[0] && grid[1] && grid[2] && grid[0] < 1u << 31 && grid[1] < 1u << 16, INVALID_VALUE);
    REQUIRE(grid[2] < 1u << 16 && threads && threads <= 1024, INVALID_VALUE);
    REQUIRE(shared_bytes <= 49152, INVALID_VALUE);
    *operation = (struct operation){
        .kernel = function->kernel, .stamps = module->stamps, .pinned = module->size > 0};
    memcpy(operation->grid, grid, sizeof operation->grid);
    memcpy(operation->block, block, sizeof operation->block);
    for (int i = 0; sizes[i]; i++) /* the driver, too, has copied them when it returns */
        memcpy(&operation->values[i], params[i], sizes[i] - '0');
    return SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared_bytes, CUstream stream, void **params, void **extra)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    REQUIRE(clock_of(stream), INVALID_HANDLE);
    struct operation operation;
    CUresult code = kernel_operation(handle, (unsigned[3]){grid_x, grid_y, grid_z},
                                     (unsigned[3]){block_x, block_y, block_z}, shared_bytes, params,
                                     extra, &operation);
    REQUIRE(!code, code);
    int64_t takes = launch_duration();
    code = submit(stream, &operation, start + takes);
    REQUIRE(!code, code);
    spin(start, takes);
    return SUCCESS;
}
