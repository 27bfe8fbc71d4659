// The kernels of deploy/gpu_check on the CPU, by name: their indexing, tiling and barriers.
#include "cuda_on_host.h"

#include <cstring>

#define __CUDA_ARCH__ 800
#define SHARED_BYTES(name) alignas(128) static unsigned char name[96 << 10]

template <class T> static T __ldcs(const T *from)
{
    return *from;
}

template <class T> static void __stcs(T *to, T value)
{
    *to = value;
}

#include "kernels.cu"

#define PARAMETER(type, index) (*(type *)parameters[index])
#define CALLED(kernel) else if (!strcmp(name, #kernel)) body = [&] { kernel(
#define TRIAD(kernel)                                                                             \
    CALLED(kernel) PARAMETER(float4 *, 0), PARAMETER(const float4 *, 1),                          \
        PARAMETER(const float4 *, 2), PARAMETER(float, 3), PARAMETER(unsigned, 4)); }
#define FORCES(kernel)                                                                            \
    CALLED(kernel) PARAMETER(const float4 *, 0), PARAMETER(float4 *, 1), PARAMETER(unsigned, 2),  \
        PARAMETER(float, 3)); }
#define PRODUCT(kernel, type)                                                                     \
    CALLED(kernel) PARAMETER(const type *, 0), PARAMETER(const type *, 1),                        \
        PARAMETER(float *, 2), PARAMETER(unsigned, 3)); }

// False where there is no kernel of that name.
extern "C" __attribute__((visibility("default"))) bool
host_run(const char *name, unsigned int grid_x, unsigned int grid_y, unsigned int block_x,
         unsigned int block_y, void **parameters)
{
    std::function<void()> body;
    if (!strcmp(name, "ref_empty"))
        body = [] { ref_empty(); };
    CALLED(ref_count) PARAMETER(unsigned int *, 0)); };
    CALLED(ref_ring) PARAMETER(unsigned long long *, 0), PARAMETER(unsigned, 1),
        PARAMETER(unsigned, 2), PARAMETER(unsigned, 3)); };
    CALLED(ref_chase) PARAMETER(const unsigned long long **, 0), PARAMETER(unsigned, 1)); };
    TRIAD(ref_triad);
    TRIAD(ref_triad_4);
    TRIAD(ref_triad_stride);
    FORCES(ref_nbody_1_256_1);
    FORCES(ref_nbody_2_128_1);
    FORCES(ref_nbody_1_64_4);
    FORCES(ref_nbody_2_64_4);
    FORCES(ref_nbody_4_64_4);
    PRODUCT(ref_matmul_128, float);
    PRODUCT(ref_matmul_64, float);
    PRODUCT(ref_tensor_128_128, unsigned short);
    PRODUCT(ref_tensor_128_256, unsigned short);
    PRODUCT(ref_tensor_256_128, unsigned short);
    if (!body)
        return false;
    launch({grid_x, grid_y, 1}, {block_x, block_y, 1}, body);
    return true;
}
