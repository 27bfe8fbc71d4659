// The kernels that gpud's are held against: the same work and the same arguments, written and tuned
// on their own. Of several variants of one kernel the fastest counts; variants.c lists their
// shapes. Only the names of single machine instructions are taken from gpud's kernels.
#include <instructions.cuh>

// Shared memory whose size the launch gives, where a kernel needs more than 48 KiB.
#ifndef SHARED_BYTES
#define SHARED_BYTES(name) extern __shared__ __align__(128) unsigned char name[]
#endif

extern "C" __global__ void ref_empty()
{
}

extern "C" __global__ void ref_count(unsigned int *counter)
{
    if (blockIdx.x == 0 && threadIdx.x == 0)
        atomicAdd(counter, 1u);
}

// ---- latency: a ring of lines of 128 bytes, and a walk along it

// The line x leads to (x * factor + step) mod n, n a power of two. Any grid and block.
extern "C" __global__ void ref_ring(unsigned long long *ring, unsigned int n,
                                    unsigned int factor, unsigned int step)
{
    unsigned int threads = gridDim.x * blockDim.x;
    for (unsigned int x = blockIdx.x * blockDim.x + threadIdx.x; x < n; x += threads) {
        unsigned long long *next = ring + 16 * (size_t)((x * factor + step) % n);
        ring[16 * (size_t)x] = (unsigned long long)next;
    }
}

// One thread goes on from *place, past the L1 cache.
extern "C" __global__ void ref_chase(const unsigned long long **place, unsigned int loads)
{
    const unsigned long long *at = *place;
    while (loads--)
        at = (const unsigned long long *)__ldcg(at);
    *place = at;
}

// ---- device memory: a = b + s * c, float4[n4]

__device__ __forceinline__ float4 scaled(float4 x, float s, float4 y)
{
    return make_float4(x.x + s * y.x, x.y + s * y.y, x.z + s * y.z, x.w + s * y.w);
}

// One element a thread: the scheduler keeps the loads in flight. Block 256, the grid covers n4.
extern "C" __global__ void __launch_bounds__(256)
ref_triad(float4 *__restrict__ a, const float4 *__restrict__ b, const float4 *__restrict__ c,
          float s, unsigned int n4)
{
    size_t i = (size_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n4)
        a[i] = scaled(b[i], s, c[i]);
}

// Four elements a thread, all eight loads issued before the first use, past the caches. Block 256.
extern "C" __global__ void __launch_bounds__(256)
ref_triad_4(float4 *__restrict__ a, const float4 *__restrict__ b, const float4 *__restrict__ c,
            float s, unsigned int n4)
{
    size_t i = (size_t)blockIdx.x * 1024 + threadIdx.x;
    if (i + 768 < n4) {
        float4 x[4], y[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            x[k] = __ldcs(b + i + 256 * k);
            y[k] = __ldcs(c + i + 256 * k);
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            __stcs(a + i + 256 * k, scaled(x[k], s, y[k]));
        return;
    }
    for (; i < n4; i += 256)
        a[i] = scaled(b[i], s, c[i]);
}

// A grid that fits the GPU at once and strides over the arrays, two elements in flight. Block 512.
extern "C" __global__ void __launch_bounds__(512)
ref_triad_stride(float4 *__restrict__ a, const float4 *__restrict__ b,
                 const float4 *__restrict__ c, float s, unsigned int n4)
{
    size_t step = (size_t)gridDim.x * 512, i = (size_t)blockIdx.x * 512 + threadIdx.x;
    for (; i + step < n4; i += 2 * step) {
        float4 x = b[i], y = c[i], u = b[i + step], v = c[i + step];
        a[i] = scaled(x, s, y);
        a[i + step] = scaled(u, s, v);
    }
    if (i < n4)
        a[i] = scaled(b[i], s, c[i]);
}

// ---- arithmetic: all-pairs gravity; pos float4[n] with the mass in w, acc float4[n] with 0 in w

// The block is (THREADS, SLICES) and owns THREADS * BODIES bodies. A loaded body serves BODIES sums
// of a thread; the slices share the other bodies out and add up at the end, so that a small n still
// fills the GPU. n is a multiple of 256, as is THREADS * SLICES of it.
template <int BODIES, int THREADS, int SLICES>
__device__ __forceinline__ void nbody(const float4 *__restrict__ pos, float4 *__restrict__ acc,
                                      unsigned int n, float eps2)
{
    __shared__ float4 tile[SLICES][THREADS];
    unsigned int own = blockIdx.x * (THREADS * BODIES) + threadIdx.x;
    float x[BODIES], y[BODIES], z[BODIES], fx[BODIES], fy[BODIES], fz[BODIES];
#pragma unroll
    for (int k = 0; k < BODIES; k++) {
        float4 self = pos[own + k * THREADS];
        x[k] = self.x, y[k] = self.y, z[k] = self.z;
        fx[k] = fy[k] = fz[k] = 0;
    }
    unsigned int other = threadIdx.y * THREADS + threadIdx.x;
    float4 next = pos[other];
    for (unsigned int done = 0; done < n; done += THREADS * SLICES) {
        tile[threadIdx.y][threadIdx.x] = next;
        __syncthreads();
        other += THREADS * SLICES;
        if (other < n)
            next = pos[other]; // travels while the present tile is computed
#pragma unroll 8
        for (int j = 0; j < THREADS; j++) {
            float4 body = tile[threadIdx.y][j];
#pragma unroll
            for (int k = 0; k < BODIES; k++) {
                float dx = body.x - x[k], dy = body.y - y[k], dz = body.z - z[k];
                float root = rsqrt_approx(dx * dx + (dy * dy + (dz * dz + eps2)));
                float factor = (body.w * root) * (root * root);
                fx[k] += dx * factor, fy[k] += dy * factor, fz[k] += dz * factor;
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < BODIES; k++) {
        if (SLICES > 1) {
            tile[threadIdx.y][threadIdx.x] = make_float4(fx[k], fy[k], fz[k], 0);
            __syncthreads();
        }
        if (threadIdx.y == 0) {
            float4 sum = make_float4(fx[k], fy[k], fz[k], 0);
#pragma unroll
            for (int slice = 1; slice < SLICES; slice++) {
                float4 part = tile[slice][threadIdx.x];
                sum.x += part.x, sum.y += part.y, sum.z += part.z;
            }
            acc[own + k * THREADS] = sum;
        }
        if (SLICES > 1)
            __syncthreads();
    }
}

#define NBODY(name, bodies, threads, slices)                                                      \
    extern "C" __global__ void __launch_bounds__(threads *slices)                                 \
    name(const float4 *__restrict__ pos, float4 *__restrict__ acc, unsigned int n, float eps2)    \
    {                                                                                             \
        nbody<bodies, threads, slices>(pos, acc, n, eps2);                                        \
    }

NBODY(ref_nbody_1_256_1, 1, 256, 1)
NBODY(ref_nbody_2_128_1, 2, 128, 1)
NBODY(ref_nbody_1_64_4, 1, 64, 4)
NBODY(ref_nbody_2_64_4, 2, 64, 4)
NBODY(ref_nbody_4_64_4, 4, 64, 4)

// ---- FP32 matrix product: c = a * b, row-major float[n][n], 2 n^3 flops

// Block 256, the grid (n / TILE, n / TILE) with TILE = 64 * Q. A thread owns Q * Q quads of 4 x 4
// elements that lie 64 apart, so that the reads of a warp do not meet in a bank. Two tiles in
// shared memory: one is multiplied while the next is written, with one barrier a step.
template <int Q>
__device__ __forceinline__ void matmul(const float *__restrict__ a, const float *__restrict__ b,
                                       float *__restrict__ c, unsigned int n)
{
    constexpr int TILE = 64 * Q, DEPTH = 16 / Q; // a thread fetches one float4 of each tile
    __shared__ __align__(16) float left[2][DEPTH][TILE + 4];
    __shared__ __align__(16) float right[2][DEPTH][TILE];
    unsigned int t = threadIdx.x, lane = t % 32, warp = t / 32;
    // A warp is 4 x 8 threads in an order that lets its reads of 16 bytes merge.
    unsigned int tx = (warp % 2 * 8 + lane / 2 % 8) * 4;
    unsigned int ty = (warp / 2 * 4 + lane / 16 * 2 + lane % 2) * 4;
    unsigned int row_a = t / (DEPTH / 4), column_a = t % (DEPTH / 4) * 4;
    unsigned int row_b = t / (TILE / 4), column_b = t % (TILE / 4) * 4;
    const float *from_a = a + (size_t)(blockIdx.y * TILE + row_a) * n + column_a;
    const float *from_b = b + (size_t)row_b * n + blockIdx.x * TILE + column_b;
    float4 next_a = *(const float4 *)from_a, next_b = *(const float4 *)from_b;
    float sum[Q][Q][4][4] = {};
    for (unsigned int k = 0, now = 0; k < n; k += DEPTH, now ^= 1) {
        left[now][column_a + 0][row_a] = next_a.x;
        left[now][column_a + 1][row_a] = next_a.y;
        left[now][column_a + 2][row_a] = next_a.z;
        left[now][column_a + 3][row_a] = next_a.w;
        *(float4 *)&right[now][row_b][column_b] = next_b;
        __syncthreads(); // whoever is here has finished the tile before last
        if (k + DEPTH < n) {
            from_a += DEPTH;
            from_b += (size_t)DEPTH * n;
            next_a = *(const float4 *)from_a;
            next_b = *(const float4 *)from_b;
        }
#pragma unroll
        for (int step = 0; step < DEPTH; step++) {
            float rows[Q][4], columns[Q][4];
#pragma unroll
            for (int q = 0; q < Q; q++) {
                *(float4 *)rows[q] = *(const float4 *)&left[now][step][ty + 64 * q];
                *(float4 *)columns[q] = *(const float4 *)&right[now][step][tx + 64 * q];
            }
#pragma unroll
            for (int p = 0; p < Q; p++)
#pragma unroll
                for (int q = 0; q < Q; q++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            sum[p][q][i][j] += rows[p][i] * columns[q][j];
        }
    }
#pragma unroll
    for (int p = 0; p < Q; p++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float *to = c + (size_t)(blockIdx.y * TILE + ty + 64 * p + i) * n + blockIdx.x * TILE;
#pragma unroll
            for (int q = 0; q < Q; q++)
                *(float4 *)(to + tx + 64 * q) = *(const float4 *)sum[p][q][i];
        }
}

extern "C" __global__ void __launch_bounds__(256, 2)
ref_matmul_128(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
               unsigned int n)
{
    matmul<2>(a, b, c, n);
}

extern "C" __global__ void __launch_bounds__(256)
ref_matmul_64(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c,
              unsigned int n)
{
    matmul<1>(a, b, c, n);
}

// ---- tensor cores: c = a * b, row-major, FP16 in and FP32 out, 2 n^3 flops

#if __CUDA_ARCH__ >= 800

// 256 threads, the grid (n / COLUMNS, n / ROWS), STAGES tiles of depth 32 in dynamic shared memory.
// A row of the left tile is four pieces of 16 bytes and two rows share the 32 banks; a row of the
// right tile has them all. Both orders of pieces make the eight rows that ldmatrix reads at once
// lie in different banks.
template <int ROWS, int COLUMNS, int WARP_ROWS, int WARP_COLUMNS, int STAGES>
__device__ __forceinline__ void tensor(const unsigned short *__restrict__ a,
                                       const unsigned short *__restrict__ b,
                                       float *__restrict__ c, unsigned int n)
{
    constexpr int DEPTH = 32, LEFT = ROWS * DEPTH * 2, RIGHT = COLUMNS * DEPTH * 2;
    constexpr int HIGH = WARP_ROWS / 16, WIDE = WARP_COLUMNS / 8, BAND = 8;
    SHARED_BYTES(shared);
    unsigned int t = threadIdx.x, lane = t % 32, warp = t / 32;
    unsigned int warp_row = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS;
    unsigned int warp_column = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS;

    // Blocks that run together take a band of BAND rows of tiles, so that they share the L2.
    unsigned int id = blockIdx.y * gridDim.x + blockIdx.x, per_band = BAND * gridDim.x;
    unsigned int band = id / per_band, high = min((unsigned int)BAND, gridDim.y - band * BAND);
    unsigned int row = (band * BAND + id % per_band % high) * ROWS;
    unsigned int column = id % per_band / high * COLUMNS;

    auto fetch = [&](unsigned int step) {
        unsigned char *stage = shared + step % STAGES * (LEFT + RIGHT);
#pragma unroll
        for (int piece = t; piece < ROWS * 4; piece += 256) {
            int r = piece / 4, p = piece % 4;
            cp_async(stage + r * 64 + (p ^ (r >> 1 & 3)) * 16,
                     a + (size_t)(row + r) * n + step * DEPTH + p * 8);
        }
#pragma unroll
        for (int piece = t; piece < COLUMNS * 4; piece += 256) {
            int r = piece / (COLUMNS / 8), p = piece % (COLUMNS / 8);
            cp_async(stage + LEFT + r * (COLUMNS * 2) + (p ^ (r & 7)) * 16,
                     b + (size_t)(step * DEPTH + r) * n + column + p * 8);
        }
    };

    float sum[HIGH][WIDE][4] = {};
    unsigned int steps = n / DEPTH;
#pragma unroll
    for (unsigned int step = 0; step < STAGES - 1; step++) {
        if (step < steps)
            fetch(step);
        cp_async_commit();
    }
    for (unsigned int step = 0; step < steps; step++) {
        cp_async_wait<STAGES - 2>();
        __syncthreads(); // this tile has arrived, and nobody reads the one that is fetched over
        if (step + STAGES - 1 < steps)
            fetch(step + STAGES - 1);
        cp_async_commit();
        const unsigned char *left = shared + step % STAGES * (LEFT + RIGHT), *right = left + LEFT;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned int rows[HIGH][4], columns[WIDE / 2][4];
#pragma unroll
            for (int i = 0; i < HIGH; i++) {
                unsigned int r = warp_row + i * 16 + lane % 16, p = half * 2 + lane / 16;
                ldmatrix(rows[i], left + r * 64 + (p ^ (r >> 1 & 3)) * 16);
            }
#pragma unroll
            for (int j = 0; j < WIDE / 2; j++) {
                unsigned int r = half * 16 + lane % 16, p = warp_column / 8 + j * 2 + lane / 16;
                ldmatrix_trans(columns[j], right + r * (COLUMNS * 2) + (p ^ (r & 7)) * 16);
            }
#pragma unroll
            for (int i = 0; i < HIGH; i++)
#pragma unroll
                for (int j = 0; j < WIDE; j++)
                    mma(sum[i][j], rows[i], columns[j / 2][j % 2 * 2],
                        columns[j / 2][j % 2 * 2 + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
        for (int j = 0; j < WIDE; j++) {
            float *to = c + (size_t)(row + warp_row + i * 16 + lane / 4) * n + column + warp_column
                        + j * 8 + lane % 4 * 2;
            *(float2 *)to = make_float2(sum[i][j][0], sum[i][j][1]);
            *(float2 *)(to + (size_t)8 * n) = make_float2(sum[i][j][2], sum[i][j][3]);
        }
}

#define TENSOR(name, blocks, rows, columns, warp_rows, warp_columns, stages)                      \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
    name(const unsigned short *__restrict__ a, const unsigned short *__restrict__ b,              \
         float *__restrict__ c, unsigned int n)                                                   \
    {                                                                                             \
        tensor<rows, columns, warp_rows, warp_columns, stages>(a, b, c, n);                       \
    }

TENSOR(ref_tensor_128_128, 2, 128, 128, 64, 32, 3)
TENSOR(ref_tensor_128_256, 1, 128, 256, 64, 64, 4)
TENSOR(ref_tensor_256_128, 1, 256, 128, 64, 64, 4)

#endif
