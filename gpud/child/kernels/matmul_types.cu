// C = A * B on the tensor cores in other types than FP16: 2 n^3 operations, sums and C in 32 bits.
// bf16 and tf32 have sums in FP32, int8 in whole numbers. C is row-major; A is row-major and B
// column-major, so that a row of A and a column of B lie in one piece. n is a multiple of 128, the
// grid (n / 128, n / 128), the block (256, 1). Compute capability 8.0.
//
// One kernel in bytes: an mma takes 32 bytes of 16 rows of A and of 8 columns of B, whatever is in
// them, and ldmatrix brings them to where the mma of each type wants them. Tiles, stages and warps
// are those of gpud_matmul_tensor.
#include <instructions.cuh>
#include <tiles.cuh>

#define TILE 128
#define SLICE 4 // chunks of 16 bytes: what a slice has of each row of A and column of B
#define STAGES 3

// Where a slice keeps its chunks: one pass of ldmatrix reads the same chunk of eight rows.
__device__ __forceinline__ unsigned int place(unsigned int row, unsigned int chunk)
{
    return row * SLICE + (chunk ^ row / 2 % SLICE);
}

// `length`: chunks in a row of A, and in a column of B.
template <class Sum, void (*MMA)(Sum (&)[4], const unsigned int (&)[4], unsigned int, unsigned int)>
__device__ __forceinline__ void multiply(const uint4 *__restrict__ a, const uint4 *__restrict__ b,
                                         Sum *__restrict__ c, unsigned int n, unsigned int length)
{
    __shared__ uint4 tile_a[STAGES][TILE * SLICE], tile_b[STAGES][TILE * SLICE];
    uint2 tile = own_tile();
    unsigned int first_row = tile.x * TILE, first_column = tile.y * TILE;
    unsigned int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    unsigned int own = thread / SLICE, chunk = thread % SLICE, to = place(own, chunk);
    const uint4 *from_a = a + (size_t)(first_row + own) * length + chunk;
    const uint4 *from_b = b + (size_t)(first_column + own) * length + chunk;
    auto fetch = [&](unsigned int stage) {
        // 64 rows further down the exclusive or is the same.
        cp_async(&tile_a[stage][to], from_a);
        cp_async(&tile_a[stage][to] + TILE / 2 * SLICE, from_a + (size_t)(TILE / 2) * length);
        cp_async(&tile_b[stage][to], from_b);
        cp_async(&tile_b[stage][to] + TILE / 2 * SLICE, from_b + (size_t)(TILE / 2) * length);
        from_a += SLICE;
        from_b += SLICE;
    };
#pragma unroll
    for (unsigned int stage = 0; stage < STAGES - 1; stage++) {
        fetch(stage);
        cp_async_commit();
    }

    unsigned int row = warp / 4 * 64, column = warp % 4 * 32;
    unsigned int at_a = place(row + lane % 16, lane / 16);
    unsigned int at_b = place(column + lane % 16, lane / 16);
    Sum sum[4][4][4] = {};
    unsigned int stage = 0, next = STAGES - 1;
    for (unsigned int k = 0; k < length; k += SLICE) {
        // As in gpud_matmul_tensor: the oldest slice is here, and the next stage has been left.
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (k + (STAGES - 1) * SLICE < length)
            fetch(next);
        cp_async_commit(); // an empty group too: the wait counts groups
#pragma unroll
        for (unsigned int step = 0; step < SLICE / 2; step++) {
            unsigned int left[4][4], right[2][4];
#pragma unroll
            for (unsigned int i = 0; i < 4; i++)
                ldmatrix(left[i], &tile_a[stage][at_a ^ step * 2] + i * 16 * SLICE);
#pragma unroll
            for (unsigned int j = 0; j < 2; j++)
                ldmatrix(right[j], &tile_b[stage][at_b ^ step * 2] + j * 16 * SLICE);
#pragma unroll
            for (unsigned int i = 0; i < 4; i++)
#pragma unroll
                for (unsigned int j = 0; j < 4; j++)
                    MMA(sum[i][j], left[i], right[j / 2][j % 2], right[j / 2][j % 2 + 2]);
        }
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        next = next + 1 < STAGES ? next + 1 : 0;
    }
    Sum *into = c + (size_t)(first_row + row + lane / 4) * n + first_column + column + lane % 4 * 2;
#pragma unroll
    for (unsigned int i = 0; i < 4; i++)
#pragma unroll
        for (unsigned int j = 0; j < 4; j++)
#pragma unroll
            for (unsigned int part = 0; part < 4; part++)
                into[(size_t)(i * 16 + part / 2 * 8) * n + j * 8 + part % 2] = sum[i][j][part];
}

extern "C" __global__ void __launch_bounds__(256, 2)
gpud_matmul_bf16(const uint4 *__restrict__ a, const uint4 *__restrict__ b, float *__restrict__ c,
                 unsigned int n)
{
    stamp_begin();
    multiply<float, mma_bf16>(a, b, c, n, n / 8);
    stamp_end();
}

extern "C" __global__ void __launch_bounds__(256, 2)
gpud_matmul_tf32(const uint4 *__restrict__ a, const uint4 *__restrict__ b, float *__restrict__ c,
                 unsigned int n)
{
    stamp_begin();
    multiply<float, mma_tf32>(a, b, c, n, n / 4);
    stamp_end();
}

extern "C" __global__ void __launch_bounds__(256, 2)
gpud_matmul_int8(const uint4 *__restrict__ a, const uint4 *__restrict__ b, int *__restrict__ c,
                 unsigned int n)
{
    stamp_begin();
    multiply<int, mma_int8>(a, b, c, n, n / 16);
    stamp_end();
}
