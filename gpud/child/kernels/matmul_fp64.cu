// C = A * B in double precision, without tensor cores: 2 n^3 flops. Row-major double[n][n], n a
// multiple of 64, the grid (n / 64, n / 64), the block (8, 8). Each block owns a 64 x 64 tile of C and
// each thread 8 x 8 of it: 4 multiply-adds for each double read from shared memory.

#include <instructions.cuh>

#define TILE 64
#define DEPTH 8

extern "C" __global__ void __launch_bounds__(64)
gpud_matmul_fp64(const double *__restrict__ a, const double *__restrict__ b, double *__restrict__ c,
                 unsigned int n)
{
    stamp_begin();
    // A lies transposed; its two spare columns keep a warp's writes out of each other's banks.
    __shared__ __align__(16) double tile_a[2][DEPTH][TILE + 2];
    __shared__ __align__(16) double tile_b[2][DEPTH][TILE];
    unsigned int thread = threadIdx.y * 8 + threadIdx.x;
    const double *from_a = a + (size_t)(blockIdx.y * TILE + thread) * n;
    const double *from_b = b + blockIdx.x * TILE + thread;
    double next_a[DEPTH], next_b[DEPTH], sum[8][8] = {};
    auto fetch = [&]() {
#pragma unroll
        for (unsigned int i = 0; i < DEPTH; i++) {
            next_a[i] = from_a[i];
            next_b[i] = from_b[(size_t)i * n];
        }
        from_a += DEPTH;
        from_b += (size_t)DEPTH * n;
    };
    fetch();
    unsigned int stage = 0;
    for (unsigned int k = 0; k < n; k += DEPTH) {
        // Two stages, so that one barrier per slice is enough: who writes a stage has passed the
        // barrier that all reached after reading it.
#pragma unroll
        for (unsigned int i = 0; i < DEPTH; i++) {
            tile_a[stage][i][thread] = next_a[i];
            tile_b[stage][i][thread] = next_b[i];
        }
        __syncthreads();
        if (k + DEPTH < n)
            fetch();
#pragma unroll
        for (unsigned int step = 0; step < DEPTH; step++) {
            double left[8], right[8];
#pragma unroll
            for (unsigned int i = 0; i < 8; i++) {
                left[i] = tile_a[stage][step][threadIdx.y + i * 8];
                right[i] = tile_b[stage][step][threadIdx.x + i * 8];
            }
#pragma unroll
            for (unsigned int i = 0; i < 8; i++)
#pragma unroll
                for (unsigned int j = 0; j < 8; j++)
                    sum[i][j] += left[i] * right[j];
        }
        stage ^= 1;
    }
    double *to = c + (size_t)(blockIdx.y * TILE + threadIdx.y) * n + blockIdx.x * TILE + threadIdx.x;
#pragma unroll
    for (unsigned int i = 0; i < 8; i++)
#pragma unroll
        for (unsigned int j = 0; j < 8; j++)
            to[(size_t)(i * 8) * n + j * 8] = sum[i][j];
    stamp_end();
}
