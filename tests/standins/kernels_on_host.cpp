// The CUDA sources of gpud/child/kernels, compiled for the CPU: their indexing, tiling, barriers and
// waits are then checked on machines with no GPU.
#include <instructions.cuh> // the one beside this file: the search path says so

#include "chase.cu"
#include "empty.cu"
#include "matmul.cu"
#undef TILE
#undef DEPTH
#include "matmul_128.cu"
#undef TILE
#undef DEPTH
#include "matmul_fp64.cu"
#undef TILE
#undef DEPTH
#include "matmul_tensor.cu"
#undef TILE
#undef STAGES
#include "matmul_types.cu"
#undef TILE
#include "nbody.cu"
#include "sums.cu"
#include "triad.cu"

#define EXPORT extern "C" __attribute__((visibility("default")))

// Let every kernel run on where it should stop; what it computes must then be wrong.
EXPORT void host_ignore(const char *what)
{
    barriers_ignored = !strcmp(what, "barriers");
    waits_ignored = !strcmp(what, "waits");
}

// How often loads of matrices had to read a bank twice since the last question.
EXPORT uint64_t host_bank_conflicts()
{
    uint64_t found = bank_conflicts;
    bank_conflicts = 0;
    return found;
}

EXPORT void host_count(unsigned int *counter, unsigned int grid, unsigned int block)
{
    launch({grid, 1, 1}, {block, 1, 1}, [&] { gpud_count(counter); });
}

EXPORT void host_ring(unsigned long long *ring, unsigned int n, unsigned int factor,
                      unsigned int step, unsigned int grid, unsigned int block)
{
    launch({grid, 1, 1}, {block, 1, 1}, [&] { gpud_ring(ring, n, factor, step); });
}

EXPORT void host_chase(unsigned long long *place, unsigned int loads)
{
    launch({1, 1, 1}, {1, 1, 1}, [&] { gpud_chase(place, loads); });
}

EXPORT void host_triad(float4 *a, const float4 *b, const float4 *c, float s, unsigned int n4,
                       unsigned int grid, unsigned int block)
{
    launch({grid, 1, 1}, {block, 1, 1}, [&] { gpud_triad(a, b, c, s, n4); });
}

EXPORT void host_nbody(const float4 *pos, float4 *acc, unsigned int n, float eps2)
{
    launch({n / 256, 1, 1}, {256, 1, 1}, [&] { gpud_nbody(pos, acc, n, eps2); });
}

EXPORT void host_matmul(const float *a, const float *b, float *c, unsigned int n)
{
    launch({n / 64, n / 64, 1}, {16, 16, 1}, [&] { gpud_matmul(a, b, c, n); });
}

EXPORT void host_matmul_16(const float *a, const float *b, float *c, unsigned int n)
{
    launch({n / 16, n / 16, 1}, {16, 16, 1}, [&] { gpud_matmul_16(a, b, c, n); });
}

EXPORT void host_matmul_128(const float *a, const float *b, float *c, unsigned int n)
{
    launch({n / 128, n / 128, 1}, {16, 16, 1}, [&] { gpud_matmul_128(a, b, c, n); });
}

EXPORT void host_matmul_tensor(const unsigned short *a, const unsigned short *b, float *c,
                               unsigned int n)
{
    launch({n / 128, n / 128, 1}, {256, 1, 1}, [&] { gpud_matmul_tensor(a, b, c, n); });
}

EXPORT void host_matmul_fp64(const double *a, const double *b, double *c, unsigned int n)
{
    launch({n / 64, n / 64, 1}, {8, 8, 1}, [&] { gpud_matmul_fp64(a, b, c, n); });
}

#define TYPE(name, sum)                                                                            \
    EXPORT void host_matmul_##name(const uint4 *a, const uint4 *b, sum *c, unsigned int n)         \
    {                                                                                              \
        launch({n / 128, n / 128, 1}, {256, 1, 1}, [&] { gpud_matmul_##name(a, b, c, n); });       \
    }                                                                                              \
    EXPORT void host_mma_##name(sum(*total)[4], const unsigned int(*a)[4],                         \
                                const unsigned int(*b)[2])                                         \
    {                                                                                              \
        launch({1, 1, 1}, {WARP, 1, 1}, [&] {                                                      \
            unsigned int lane = threadIdx.x;                                                       \
            mma_##name(total[lane], a[lane], b[lane][0], b[lane][1]);                              \
        });                                                                                        \
    }

TYPE(bf16, float)
TYPE(tf32, float)
TYPE(int8, int)

#define HOST_SUMS(name, element)                                                                   \
    EXPORT void host_sums_##name(const element *matrix, const unsigned long long *weights,         \
                                 unsigned long long *sums, unsigned int across,                    \
                                 unsigned int along, unsigned int n)                               \
    {                                                                                              \
        launch({n / 64, n / 64, 1}, {64, 1, 1},                                                    \
               [&] { gpud_sums_##name(matrix, weights, sums, across, along); });                   \
    }

HOST_SUMS(fp32, float)
HOST_SUMS(fp64, double)
HOST_SUMS(fp16, unsigned short)
HOST_SUMS(bf16, unsigned short)
HOST_SUMS(int8, signed char)
HOST_SUMS(int32, int)

// One instruction each, on the registers of a warp: to be held against the tables of the PTX ISA.

EXPORT void host_mma(float (*sum)[4], const unsigned int (*a)[4], const unsigned int (*b)[2])
{
    launch({1, 1, 1}, {WARP, 1, 1}, [&] {
        unsigned int lane = threadIdx.x;
        mma(sum[lane], a[lane], b[lane][0], b[lane][1]);
    });
}

EXPORT void host_ldmatrix(unsigned int (*into)[4], const uint4 *rows)
{
    launch({1, 1, 1}, {WARP, 1, 1}, [&] { ldmatrix(into[threadIdx.x], &rows[threadIdx.x]); });
}

EXPORT void host_ldmatrix_trans(unsigned int (*into)[4], const uint4 *rows)
{
    launch({1, 1, 1}, {WARP, 1, 1}, [&] { ldmatrix_trans(into[threadIdx.x], &rows[threadIdx.x]); });
}

// Which tile each block of a grid of tiles x tiles owns, in the order of the grid.
EXPORT void host_own_tile(uint2 *tile_of_block, unsigned int tiles)
{
    launch({tiles, tiles, 1}, {1, 1, 1}, [&] {
        tile_of_block[blockIdx.y * gridDim.x + blockIdx.x] = own_tile();
    });
}
