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

/* A name in the text of a module, or in the table of strings of a compiled one. */
static bool has_name(const struct object *module, const char *name)
{
    if (!module->size)
        return strstr(module->image, name) != NULL;
    return memmem(module->image, module->size, name, strlen(name) + 1) != NULL;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                                   int *options, void **values)
{
    ENTER(CONTEXT);
    REQUIRE(module && image && (!count || (options && values)), INVALID_VALUE);
    char message[256] = "";
    int64_t start = now_ns();
    bool compiled = is_cubin(image);
    CUresult code = compiled ? cubin_check(image, current(), message, sizeof message)
                             : ptx_check(image, current(), message, sizeof message);
    spin(start, settings.module_load_ns);
    jit_log(option(count, options, values, JIT_ERROR_BUFFER),
            option(count, options, values, JIT_ERROR_SIZE), message);
    REQUIRE(!code, code);
    struct object *object = object_new(MODULE, current_index());
    object->size = compiled ? cubin_size(image) : 0;
    object->image = compiled ? malloc(object->size) : strdup(image);
    if (compiled)
        memcpy(object->image, image, object->size);
    if (has_name(object, "gpud_ends"))
        object->stamps = memory_of_module(current_index(), ENDS_BYTES + BEGINS_BYTES);
    *module = (CUmodule)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuModuleUnload(CUmodule handle)
{
    ENTER(CONTEXT);
    struct object *module = object_find(MODULE, handle);
    REQUIRE(module, INVALID_HANDLE);
    memory_free(module->stamps);
    object_free(module);
    return SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle, const char *name)
{
    ENTER(CONTEXT);
    REQUIRE(function && name, INVALID_VALUE);
    struct object *module = object_find(MODULE, handle);
    REQUIRE(module, INVALID_HANDLE);
    REQUIRE(module->size ? has_name(module, name) : ptx_has_entry(module->image, name), NOT_FOUND);
    struct object *object = object_new(FUNCTION, current_index());
    object->module = module->handle;
    object->kernel = kernel_named(name);
    *function = (CUfunction)(uintptr_t)object->handle;
    return SUCCESS;
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule handle,
                                     const char *name)
{
    ENTER(CONTEXT);
    REQUIRE(address && name, INVALID_VALUE);
    const struct object *module = object_find(MODULE, handle);
    REQUIRE(module, INVALID_HANDLE);
    bool begins = !strcmp(name, "gpud_begins");
    REQUIRE(module->stamps && (begins || !strcmp(name, "gpud_ends")), NOT_FOUND);
    *address = module->stamps + (begins ? ENDS_BYTES : 0);
    if (bytes)
        *bytes = begins ? BEGINS_BYTES : ENDS_BYTES;
    return SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction handle)
{
    ENTER(CONTEXT);
    REQUIRE(value, INVALID_VALUE);
    const struct object *function = object_find(FUNCTION, handle);
    REQUIRE(function, INVALID_HANDLE);
    const struct object *module = object_find(MODULE, (void *)(uintptr_t)function->module);
    REQUIRE(module && function->kernel, INVALID_HANDLE);
    int architecture = module->size ? cubin_architecture(module->image)
                                    : 10 * current()->cc_major + current()->cc_minor;
    const struct kernel *made = function->kernel;
    int values[] = {1024, made->shared_bytes, 0, module->size ? 0 : made->local_bytes,
                    module->size ? 128 : made->registers, module->size ? architecture : 50,
                    architecture};
    REQUIRE(attribute >= 0 && attribute < (int)(sizeof values / sizeof *values), INVALID_VALUE);
    *value = values[attribute];
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
