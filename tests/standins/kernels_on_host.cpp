// The CUDA sources of gpud/child/kernels, compiled for the CPU: their indexing, tiling and barriers
// are then checked on machines with no GPU. One thread per CUDA thread, one block at a time.
#include <pthread.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

struct float4 { float x, y, z, w; };
struct uint3 { unsigned int x, y, z; };

static float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

static uint3 gridDim, blockDim, blockIdx;
static thread_local uint3 threadIdx;
static pthread_barrier_t barrier;

static void __syncthreads()
{
    pthread_barrier_wait(&barrier);
}

static unsigned int atomicAdd(unsigned int *target, unsigned int value)
{
    return __atomic_fetch_add(target, value, __ATOMIC_SEQ_CST);
}

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static // one block runs at a time
#define asm(...) result = 1 / std::sqrt(x) // the only instruction the kernels spell out

#include "empty.cu"
#include "matmul.cu"
#undef TILE
#undef DEPTH
#include "matmul_128.cu"
#undef TILE
#include "nbody.cu"
#include "triad.cu"

static void launch(uint3 grid, uint3 block, const std::function<void()> &kernel)
{
    unsigned int threads = block.x * block.y;
    gridDim = grid;
    blockDim = block;
    pthread_barrier_init(&barrier, nullptr, threads);
    for (unsigned int index = 0; index < grid.x * grid.y; index++) {
        blockIdx = {index % grid.x, index / grid.x, 0};
        std::vector<std::thread> running;
        for (unsigned int thread = 0; thread < threads; thread++)
            running.emplace_back([&, thread] {
                threadIdx = {thread % block.x, thread / block.x, 0};
                kernel();
            });
        for (std::thread &thread : running)
            thread.join();
    }
    pthread_barrier_destroy(&barrier);
}

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void host_count(unsigned int *counter, unsigned int grid, unsigned int block)
{
    launch({grid, 1, 1}, {block, 1, 1}, [&] { gpud_count(counter); });
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
