/* Work on a stream of the stand-in libcuda.so.1: done at once, or recorded while it captures. */
#include "cuda_api.h"

#include <string.h>

static int64_t submitted_ns;

void submitted(void)
{
    if (settings.finish_ns)
        submitted_ns = now_ns();
}

void finished(void)
{
    if (submitted_ns)
        spin(submitted_ns, settings.finish_ns);
}

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

CUresult operation_run(const struct operation *operation, double *clock)
{
    double cost_ns = 0;
    CUresult code = operation->kernel ? run_kernel(operation, &cost_ns)
                                      : copy_run(&operation->copy, *clock, &cost_ns);
    REQUIRE(!code, code);
    if (operation->kernel)
        cost_ns *= kernel_slowdown();
    *clock += cost_ns;
    ledger_work(cost_ns, operation->kernel != NULL);
    return SUCCESS;
}

CUresult submit(CUstream stream, const struct operation *operation)
{
    double *clock = clock_of(stream);
    REQUIRE(clock, INVALID_HANDLE);
    if (capturing(stream))
        return capture_record(stream, operation);
    CUresult refused = capture_refuses_legacy(stream);
    return refused ? refused : operation_run(operation, clock);
}

EXPORT CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared_bytes, CUstream stream, void **params, void **extra)
{
    int64_t start = now_ns();
    ENTER(CONTEXT);
    const struct object *function = object_find(FUNCTION, handle);
    REQUIRE(function && clock_of(stream), INVALID_HANDLE);
    REQUIRE(function->kernel && !extra, NOT_SUPPORTED);
    REQUIRE(object_find(MODULE, (void *)(uintptr_t)function->module), INVALID_HANDLE);
    const char *sizes = function->kernel->parameters;
    REQUIRE(params || !*sizes, INVALID_VALUE);
    uint64_t threads = (uint64_t)block_x * block_y * block_z;
    REQUIRE(grid_x && grid_y && grid_z && grid_x < 1u << 31 && grid_y < 1u << 16, INVALID_VALUE);
    REQUIRE(grid_z < 1u << 16 && threads && threads <= 1024, INVALID_VALUE);
    REQUIRE(shared_bytes <= 49152, INVALID_VALUE);
    struct operation operation = {
        .kernel = function->kernel,
        .grid = {grid_x, grid_y, grid_z},
        .block = {block_x, block_y, block_z},
    };
    for (int i = 0; sizes[i]; i++) /* the driver, too, has copied them when it returns */
        memcpy(&operation.values[i], params[i], sizes[i] - '0');
    CUresult code = submit(stream, &operation);
    REQUIRE(!code && !capturing(stream), code);
    ledger_launch();
    spin(start, launch_duration());
    submitted();
    return SUCCESS;
}
