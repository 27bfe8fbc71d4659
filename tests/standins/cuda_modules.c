/* Modules and functions of the stand-in libcuda.so.1. */
#define _GNU_SOURCE
#include "libcuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JIT_ERROR_BUFFER = 5, JIT_ERROR_SIZE };

/* The value slot of one JIT option, else NULL. */
static void **option(unsigned count, const int *options, void **values, int wanted)
{
    for (unsigned i = 0; i < count; i++)
        if (options[i] == wanted)
            return &values[i];
    return NULL;
}

/* Put text into the caller's log buffer and the number of bytes used into its size option. */
static void jit_log(void **buffer, void **size, const char *text)
{
    unsigned used = 0;
    if (buffer && *buffer && size && (uintptr_t)*size) {
        snprintf(*buffer, (uintptr_t)*size, "%s", text);
        used = (unsigned)strlen(*buffer);
    }
    if (size)
        memcpy(size, &used, sizeof used);
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                                   int *options, void **values)
{
    ENTER(CONTEXT);
    REQUIRE(module && image && (!count || (options && values)), INVALID_VALUE);
    char message[256] = "";
    int64_t start = now_ns();
    CUresult code = ptx_check(image, current(), message, sizeof message);
    spin(start, settings.module_load_ns);
    jit_log(option(count, options, values, JIT_ERROR_BUFFER),
            option(count, options, values, JIT_ERROR_SIZE), message);
    REQUIRE(!code, code);
    struct object *object = object_new(MODULE, current_index());
    object->ptx = strdup(image);
    *module = (CUmodule)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuModuleUnload(CUmodule handle)
{
    ENTER(CONTEXT);
    struct object *module = object_find(MODULE, handle);
    REQUIRE(module, INVALID_HANDLE);
    object_free(module);
    return SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle, const char *name)
{
    ENTER(CONTEXT);
    REQUIRE(function && name, INVALID_VALUE);
    struct object *module = object_find(MODULE, handle);
    REQUIRE(module, INVALID_HANDLE);
    REQUIRE(ptx_has_entry(module->ptx, name), NOT_FOUND);
    struct object *object = object_new(FUNCTION, current_index());
    object->module = module->handle;
    object->kernel = kernel_named(name);
    *function = (CUfunction)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuModuleGetLoadingMode(int *mode)
{
    ENTER(INITIALIZED);
    REQUIRE(mode, INVALID_VALUE);
    /* The driver's own variable; lazy is its default on Linux since CUDA 12.2. */
    const char *wanted = getenv("CUDA_MODULE_LOADING");
    bool lazy = wanted && *wanted ? !strcmp(wanted, "LAZY") : settings.driver_version >= 12020;
    *mode = lazy ? 2 : 1;
    return SUCCESS;
}
