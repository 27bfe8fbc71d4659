// C = A * B on the tensor cores: 2 n^3 flops, FP16 in, FP32 sums and FP32 out. Row-major, n a multiple
// of 128, the grid (n / 128, n / 128), the block (256, 1). Compute capability 8.0.
//
// Each block owns a 128 x 128 tile of C and each of its eight warps 64 x 32 of it. Slices of A and B,
// 32 deep, are copied into three stages of shared memory while the tensor cores work on the oldest.
#include <instructions.cuh>
#include <tiles.cuh>

#define TILE 128
#define DEPTH 32
#define STAGES 3
#define CHUNK 8 // elements of 16 bytes, which all copies and loads move at a time
#define CHUNKS (TILE * DEPTH / CHUNK)

// Where a slice keeps its chunks. What one pass of a load reads are the same chunks of eight rows;
// the exclusive or puts them into eight different parts of the banks.
__device__ __forceinline__ unsigned int place_a(unsigned int row, unsigned int chunk)
{
    return row * (DEPTH / CHUNK) + (chunk ^ row / 2 % 4);
}

__device__ __forceinline__ unsigned int place_b(unsigned int row, unsigned int chunk)
{
    return row * (TILE / CHUNK) + (chunk ^ row % 8);
}

extern "C" __global__ void __launch_bounds__(256, 2)
gpud_matmul_tensor(const unsigned short *__restrict__ a, const unsigned short *__restrict__ b,
                   float *__restrict__ c, unsigned int n)
{
    __shared__ uint4 tile_a[STAGES][CHUNKS], tile_b[STAGES][CHUNKS];
    stamp_begin();
    uint2 tile = own_tile();
    unsigned int first_row = tile.x * TILE, first_column = tile.y * TILE;
    unsigned int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    unsigned int row_a = thread / 4, chunk_a = thread % 4;
    unsigned int row_b = thread / 16, chunk_b = thread % 16;
    unsigned int to_a = place_a(row_a, chunk_a), to_b = place_b(row_b, chunk_b);
    const unsigned short *from_a = a + (size_t)(first_row + row_a) * n + chunk_a * CHUNK;
    const unsigned short *from_b = b + (size_t)row_b * n + first_column + chunk_b * CHUNK;
    auto fetch = [&](unsigned int stage) {
        // 64 rows of A, or 16 of B, further down the exclusive or is the same.
        cp_async(&tile_a[stage][to_a], from_a);
        cp_async(&tile_a[stage][to_a] + CHUNKS / 2, from_a + (size_t)(TILE / 2) * n);
        cp_async(&tile_b[stage][to_b], from_b);
        cp_async(&tile_b[stage][to_b] + CHUNKS / 2, from_b + (size_t)(DEPTH / 2) * n);
        from_a += DEPTH;
        from_b += (size_t)DEPTH * n;
    };
#pragma unroll
    for (unsigned int stage = 0; stage < STAGES - 1; stage++) {
        fetch(stage);
        cp_async_commit();
    }

    unsigned int row = warp / 4 * 64, column = warp % 4 * 32;
    unsigned int at_a = place_a(row + lane % 16, lane / 16);
    unsigned int at_b = place_b(lane % 16, column / CHUNK + lane / 16);
    float sum[4][4][4] = {};
    unsigned int stage = 0, next = STAGES - 1;
    for (unsigned int k = 0; k < n; k += DEPTH) {
        // The oldest slice is here when this thread's copies have come and the barrier says the same
        // of all others. Who passes it has also left the stage that the next copies overwrite.
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (k + (STAGES - 1) * DEPTH < n)
            fetch(next);
        cp_async_commit(); // an empty group too: the wait counts groups
#pragma unroll
        for (unsigned int step = 0; step < DEPTH / 16; step++) {
            unsigned int left[4][4], right[2][4];
            const uint4 *rows = &tile_a[stage][at_a ^ step * 2];
#pragma unroll
            for (unsigned int i = 0; i < 4; i++)
                ldmatrix(left[i], rows + i * 16 * (DEPTH / CHUNK));
#pragma unroll
            for (unsigned int j = 0; j < 2; j++)
                ldmatrix_trans(right[j],
                               &tile_b[stage][at_b ^ j * 2] + step * 16 * (TILE / CHUNK));
#pragma unroll
            for (unsigned int i = 0; i < 4; i++)
#pragma unroll
                for (unsigned int j = 0; j < 4; j++)
                    mma(sum[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
        }
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        next = next + 1 < STAGES ? next + 1 : 0;
    }
    float *to = c + (size_t)(first_row + row + lane / 4) * n + first_column + column + lane % 4 * 2;
#pragma unroll
    for (unsigned int i = 0; i < 4; i++)
#pragma unroll
        for (unsigned int j = 0; j < 4; j++) {
            float *pair = to + (size_t)(i * 16) * n + j * 8;
            *(float2 *)pair = make_float2(sum[i][j][0], sum[i][j][1]);
            *(float2 *)(pair + (size_t)8 * n) = make_float2(sum[i][j][2], sum[i][j][3]);
        }
    stamp_end();
}
