// CUDA C++ on the CPU: what the kernels take from the language, and grids that run.
//
// The threads of a block take turns on one processor. A warp runs until all of it stands at a barrier
// before the next one starts, and a lane until its warp has to act together: a missing barrier then
// gives wrong results every time, and one that not all threads reach ends the program.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

struct float2 { float x, y; };
struct uint2 { unsigned int x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { unsigned int x, y, z, w; };
struct uint3 { unsigned int x, y, z; };

static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline unsigned int min(unsigned int a, unsigned int b) { return a < b ? a : b; }

static inline float __uint_as_float(unsigned int bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class Integer> static Integer atomicAdd(Integer *target, Integer value)
{
    Integer old = *target;
    *target += value;
    return old;
}

template <class T> static inline T __ldcg(const T *from) { return *from; }

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(size) __attribute__((aligned(size)))
#define __shared__ static // one block runs at a time

enum { WARP = 32, STACK = 1 << 16 };
enum State { READY, AT_WARP, AT_BLOCK, ENDED };

struct Copy { void *to; const void *from; };

struct Thread {
    ucontext_t context;
    uint3 index;
    unsigned int lane, warp;
    State state;
    std::unique_ptr<char[]> stack;
    std::vector<std::vector<Copy>> copies; // groups, the youngest and still open one last
};

// What a warp puts on the table for an instruction that all its lanes execute; two, since lanes that
// have read one may come to the next before others have read the first.
struct Exchange {
    const void *row[WARP];
    float a[WARP][8], b[WARP][4];
    unsigned int words_a[WARP][4], words_b[WARP][2];
};

static uint3 gridDim, blockDim, blockIdx, threadIdx;
static Thread *running;
static ucontext_t scheduler;
static std::vector<Exchange> exchanges[2];
static std::vector<unsigned int> turns;
static const std::function<void()> *kernel_body;
static bool barriers_ignored, waits_ignored;

static void pause_as(State state)
{
    running->state = state;
    swapcontext(&running->context, &scheduler);
}

static inline void __syncthreads()
{
    if (!barriers_ignored)
        pause_as(AT_BLOCK);
}

static void thread_main()
{
    (*kernel_body)();
    running->state = ENDED;
    setcontext(&scheduler);
}

static bool all_are(const std::vector<Thread> &threads, size_t first, size_t last, State state)
{
    for (size_t i = first; i < last; i++)
        if (threads[i].state != state)
            return false;
    return true;
}

static void release(std::vector<Thread> &threads, size_t first, size_t last)
{
    for (size_t i = first; i < last; i++)
        threads[i].state = READY;
}

// Run threads first to last - 1, a warp, until all stand at the block's barrier or have ended.
static void run_warp(std::vector<Thread> &threads, size_t first, size_t last)
{
    for (;;) {
        for (size_t i = first; i < last; i++)
            if (threads[i].state == READY) {
                running = &threads[i];
                threadIdx = running->index;
                swapcontext(&scheduler, &running->context);
            }
        if (all_are(threads, first, last, AT_BLOCK) || all_are(threads, first, last, ENDED))
            return;
        if (!all_are(threads, first, last, AT_WARP)) {
            fprintf(stderr, "the lanes of a warp stand at different barriers\n");
            abort();
        }
        turns[threads[first].warp]++;
        release(threads, first, last);
    }
}

static void prepare(Thread &thread, unsigned int number)
{
    thread.index = {number % blockDim.x, number / blockDim.x, 0};
    thread.lane = number % WARP;
    thread.warp = number / WARP;
    thread.state = READY;
    thread.copies.assign(1, {});
    getcontext(&thread.context);
    thread.context.uc_stack = {thread.stack.get(), 0, STACK};
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, thread_main, 0);
}

static void launch(uint3 grid, uint3 block, const std::function<void()> &kernel)
{
    size_t count = block.x * block.y;
    std::vector<Thread> threads(count);
    for (Thread &thread : threads)
        thread.stack = std::make_unique<char[]>(STACK);
    for (std::vector<Exchange> &exchange : exchanges)
        exchange.resize(count / WARP + 1);
    gridDim = grid;
    blockDim = block;
    kernel_body = &kernel;
    for (unsigned int index = 0; index < grid.x * grid.y; index++) {
        blockIdx = {index % grid.x, index / grid.x, 0};
        turns.assign(count / WARP + 1, 0);
        for (unsigned int i = 0; i < count; i++)
            prepare(threads[i], i);
        while (!all_are(threads, 0, count, ENDED)) {
            for (size_t first = 0; first < count; first += WARP)
                run_warp(threads, first, first + WARP < count ? first + WARP : count);
            if (all_are(threads, 0, count, AT_BLOCK))
                release(threads, 0, count);
            else if (!all_are(threads, 0, count, ENDED)) {
                fprintf(stderr, "a barrier that not all threads of the block reach\n");
                abort();
            }
        }
    }
}

// Give all lanes of the warp time to fill what is theirs; gives what all have put there.
template <class Fill> static const Exchange &exchanged(const Fill &fill)
{
    unsigned int warp = running->warp, turn = turns[warp] % 2;
    fill(exchanges[turn][warp], running->lane);
    pause_as(AT_WARP);
    return exchanges[turn][warp];
}
