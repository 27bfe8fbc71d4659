/* The same matrix products by cuBLAS, loaded at run time where it is there: the known best. */
#define _GNU_SOURCE
#include "measure.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* cublas_api.h */
enum { PLAIN = 0, R_32F = 0, R_16F = 2, COMPUTE_32F = 68, DEFAULT_ALGORITHM = -1 };

static struct {
    int (*create)(void **);
    int (*destroy)(void *);
    int (*set_stream)(void *, CUhandle);
    int (*sgemm)(void *, int, int, int, int, int, const float *, const void *, int, const void *,
                 int, const float *, void *, int);
    int (*gemm_ex)(void *, int, int, int, int, int, const void *, const void *, int, int,
                   const void *, int, int, const void *, void *, int, int, int, int);
} blas;

struct product { void *handle; enum cublas_kind kind; CUdeviceptr a, b, c; int n; };

static const char *load(const char *path)
{
    static char why[256];
    /* The light-weight half lies beside it and may not be on the loader's path. */
    char light[512];
    const char *name = strstr(path, "libcublas.so");
    if (name) {
        snprintf(light, sizeof light, "%.*slibcublasLt.so%s", (int)(name - path), path,
                 name + strlen("libcublas.so"));
        dlopen(light, RTLD_NOW | RTLD_GLOBAL); /* where it is elsewhere, the loader finds it */
    }
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        snprintf(why, sizeof why, "%s", dlerror());
        return why;
    }
    *(void **)&blas.create = dlsym(library, "cublasCreate_v2");
    *(void **)&blas.destroy = dlsym(library, "cublasDestroy_v2");
    *(void **)&blas.set_stream = dlsym(library, "cublasSetStream_v2");
    *(void **)&blas.sgemm = dlsym(library, "cublasSgemm_v2");
    *(void **)&blas.gemm_ex = dlsym(library, "cublasGemmEx");
    return blas.create && blas.destroy && blas.set_stream && blas.sgemm && blas.gemm_ex
               ? NULL : "it lacks a function of cuBLAS 11 or newer";
}

static void checked(int status, const char *function)
{
    if (status)
        fail("%s: cuBLAS status %d", function, status);
}

/* Column by column, C' = B' A' is the row-major C = A B. */
static void multiply(void *context)
{
    struct product *product = context;
    const float one = 1, zero = 0;
    int n = product->n;
    const void *a = (const void *)(uintptr_t)product->a, *b = (const void *)(uintptr_t)product->b;
    void *c = (void *)(uintptr_t)product->c;
    if (product->kind == SINGLE)
        checked(blas.sgemm(product->handle, PLAIN, PLAIN, n, n, n, &one, b, n, a, n, &zero, c, n),
                "cublasSgemm");
    else
        checked(blas.gemm_ex(product->handle, PLAIN, PLAIN, n, n, n, &one, b, R_16F, n, a, R_16F, n,
                             &zero, c, R_32F, n, COMPUTE_32F, DEFAULT_ALGORITHM),
                "cublasGemmEx");
}

const char *cublas_product(const struct options *options, enum cublas_kind kind, CUdeviceptr a,
                           CUdeviceptr b, CUdeviceptr c, unsigned n, enqueue *run, void **context)
{
    static struct product product;
    static char words[64];
    const char *why = blas.create ? NULL : load(options->cublas);
    if (why)
        return why;
    product = (struct product){.kind = kind, .a = a, .b = b, .c = c, .n = (int)n};
    int status = blas.create(&product.handle);
    if (status) {
        snprintf(words, sizeof words, "cublasCreate: status %d", status);
        return words;
    }
    checked(blas.set_stream(product.handle, gpu.stream), "cublasSetStream");
    *run = multiply;
    *context = &product;
    return NULL;
}

void measure_cublas(const struct options *options, enum cublas_kind kind, CUdeviceptr a,
                    CUdeviceptr b, CUdeviceptr c, unsigned n,
                    void (*check)(void *context, const char *variant), void *context)
{
    const char *name = kind == SINGLE ? "matmul_cublas" : "tensor_cublas";
    enqueue run;
    void *product;
    const char *why = cublas_product(options, kind, a, b, c, n, &run, &product);
    if (why) {
        missing(name, why);
        return;
    }
    struct rate rate = rate_of(run, product, 2.0 * (double)n * n * n);
    poison(c, 4 * (size_t)n * n);
    run(product);
    synchronize();
    check(context, name);
    figure(name, "flops_per_second", rate, BATCHES, options->cublas);
    checked(blas.destroy(((struct product *)product)->handle), "cublasDestroy");
}
