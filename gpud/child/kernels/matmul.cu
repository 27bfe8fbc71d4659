// C = A * B in single precision: 2 n^3 flops. Row-major float[n][n]. The next slices of A and B travel
// while the present ones are multiplied.

#define TILE 64
#define DEPTH 16

// n a multiple of 64, the grid (n / 64, n / 64), the block (16, 16). Each block owns a 64 x 64 tile of
// C and each thread 4 x 4 of it.
extern "C" __global__ void __launch_bounds__(256)
gpud_matmul(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
            unsigned int n)
{
    // A lies transposed, so that both operands of a step are one aligned float4 per thread. The four
    // spare columns keep that alignment, and with them a warp writes 16 rows of 2 x 4 without two of
    // its threads in one bank.
    __shared__ __align__(16) float tile_a[DEPTH][TILE + 4];
    __shared__ __align__(16) float tile_b[DEPTH][TILE];
    unsigned int thread = threadIdx.y * 16 + threadIdx.x, lane = thread % 32, warp = thread / 32;
    // A warp is 4 x 8 threads: lanes n and n ^ 2 share their rows, n and n ^ 1 their columns. NVIDIA
    // says (of 7.0 to 7.5) that a shared load of 16 bytes takes two passes then, and four otherwise.
    unsigned int row = (warp / 2 * 4 + lane / 16 * 2 + lane % 2) * 4;
    unsigned int column = (warp % 2 * 8 + lane / 2 % 8) * 4;
    unsigned int row_a = thread % 128 / 2, column_a = thread / 128 * 8 + thread % 2 * 4;
    unsigned int row_b = thread / 16, column_b = thread % 16 * 4;
    const float *from_a = a + (size_t)(blockIdx.y * TILE + row_a) * n + column_a;
    const float *from_b = b + (size_t)row_b * n + blockIdx.x * TILE + column_b;
    float4 next_a = *(const float4 *)from_a, next_b = *(const float4 *)from_b;
    float sum[4][4] = {};
    for (unsigned int k = 0; k < n; k += DEPTH) {
        tile_a[column_a + 0][row_a] = next_a.x;
        tile_a[column_a + 1][row_a] = next_a.y;
        tile_a[column_a + 2][row_a] = next_a.z;
        tile_a[column_a + 3][row_a] = next_a.w;
        *(float4 *)&tile_b[row_b][column_b] = next_b;
        __syncthreads();
        if (k + DEPTH < n) {
            from_a += DEPTH;
            from_b += (size_t)DEPTH * n;
            next_a = *(const float4 *)from_a;
            next_b = *(const float4 *)from_b;
        }
#pragma unroll
        for (int step = 0; step < DEPTH; step++) {
            float4 left = *(const float4 *)&tile_a[step][row];
            float4 right = *(const float4 *)&tile_b[step][column];
            float rows[4] = {left.x, left.y, left.z, left.w};
            float columns[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] += rows[i] * columns[j];
        }
        __syncthreads();
    }
    float *to = c + (size_t)(blockIdx.y * TILE + row) * n + blockIdx.x * TILE + column;
#pragma unroll
    for (int i = 0; i < 4; i++)
        *(float4 *)(to + (size_t)i * n) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}

// For small matrices, of which the other kernel makes too few blocks to fill a GPU: n a multiple of
// 16, the grid (n / 16, n / 16), the block (16, 16), one element of C per thread.
extern "C" __global__ void __launch_bounds__(256)
gpud_matmul_16(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
               unsigned int n)
{
    __shared__ float tile_a[2][DEPTH][DEPTH], tile_b[2][DEPTH][DEPTH];
    unsigned int row = threadIdx.y, column = threadIdx.x, stage = 0;
    const float *from_a = a + (size_t)(blockIdx.y * DEPTH + row) * n + column;
    const float *from_b = b + (size_t)row * n + blockIdx.x * DEPTH + column;
    float next_a = *from_a, next_b = *from_b, sum = 0;
    for (unsigned int k = 0; k < n; k += DEPTH) {
        // Two stages, so that one barrier per slice is enough: who writes a stage has passed the
        // barrier that all reached after reading it.
        tile_a[stage][row][column] = next_a;
        tile_b[stage][row][column] = next_b;
        __syncthreads();
        if (k + DEPTH < n) {
            from_a += DEPTH;
            from_b += (size_t)DEPTH * n;
            next_a = *from_a;
            next_b = *from_b;
        }
#pragma unroll
        for (int step = 0; step < DEPTH; step++)
            sum += tile_a[stage][row][step] * tile_b[stage][step][column];
        stage ^= 1;
    }
    c[(size_t)(blockIdx.y * DEPTH + row) * n + blockIdx.x * DEPTH + column] = sum;
}
