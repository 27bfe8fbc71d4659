// C = A * B in single precision for large matrices: 2 n^3 flops. Row-major float[n][n], n a multiple
// of 128, the grid (n / 128, n / 128), the block (16, 16). Each block owns a 128 x 128 tile of C and
// each thread 8 x 8 of it, as four squares of 4 x 4 that lie 64 apart: 4 multiply-adds for each float
// read from shared memory, twice as many as with 64 x 64.
#include <instructions.cuh>

#define TILE 128
#define HALF (TILE / 2)
#define DEPTH 8

extern "C" __global__ void __launch_bounds__(256, 2)
gpud_matmul_128(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
                unsigned int n)
{
    // A lies transposed; its four spare columns keep a warp's writes out of each other's banks.
    __shared__ __align__(16) float tile_a[2][DEPTH][TILE + 4];
    __shared__ __align__(16) float tile_b[2][DEPTH][TILE];
    stamp_begin();
    unsigned int thread = threadIdx.y * 16 + threadIdx.x, lane = thread % 32, warp = thread / 32;
    // A warp is 4 x 8 threads: lanes n and n ^ 2 share their rows, n and n ^ 1 their columns. NVIDIA
    // says (of 7.0 to 7.5) that a shared load of 16 bytes takes two passes then, and four otherwise.
    unsigned int row = (warp / 2 * 4 + lane / 16 * 2 + lane % 2) * 4;
    unsigned int column = (warp % 2 * 8 + lane / 2 % 8) * 4;
    unsigned int row_a = thread / 2, column_a = thread % 2 * 4;
    unsigned int row_b = thread / 32, column_b = thread % 32 * 4;
    const float *from_a = a + (size_t)(blockIdx.y * TILE + row_a) * n + column_a;
    const float *from_b = b + (size_t)row_b * n + blockIdx.x * TILE + column_b;
    float4 next_a = *(const float4 *)from_a, next_b = *(const float4 *)from_b;
    float sum[8][8] = {};
    unsigned int stage = 0;
    for (unsigned int k = 0; k < n; k += DEPTH) {
        // Two stages, so that one barrier per slice is enough: who writes a stage has passed the
        // barrier that all reached after reading it.
        tile_a[stage][column_a + 0][row_a] = next_a.x;
        tile_a[stage][column_a + 1][row_a] = next_a.y;
        tile_a[stage][column_a + 2][row_a] = next_a.z;
        tile_a[stage][column_a + 3][row_a] = next_a.w;
        *(float4 *)&tile_b[stage][row_b][column_b] = next_b;
        __syncthreads();
        if (k + DEPTH < n) {
            from_a += DEPTH;
            from_b += (size_t)DEPTH * n;
            next_a = *(const float4 *)from_a;
            next_b = *(const float4 *)from_b;
        }
#pragma unroll
        for (int step = 0; step < DEPTH; step++) {
            float left[8], right[8];
            *(float4 *)&left[0] = *(const float4 *)&tile_a[stage][step][row];
            *(float4 *)&left[4] = *(const float4 *)&tile_a[stage][step][row + HALF];
            *(float4 *)&right[0] = *(const float4 *)&tile_b[stage][step][column];
            *(float4 *)&right[4] = *(const float4 *)&tile_b[stage][step][column + HALF];
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int there = 0; there < 8; there++) {
                    int j = i % 2 ? 7 - there : there; // and back: the turn reuses an operand
                    sum[i][j] += left[i] * right[j];
                }
        }
        stage ^= 1;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float *to = c + (size_t)(blockIdx.y * TILE + row + i / 4 * HALF + i % 4) * n
                    + blockIdx.x * TILE + column;
        *(float4 *)to = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
        *(float4 *)(to + HALF) = make_float4(sum[i][4], sum[i][5], sum[i][6], sum[i][7]);
    }
    stamp_end();
}
