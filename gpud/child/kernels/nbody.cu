// One evaluation of all pair forces among n bodies; by convention 20 flops per interaction.
//
// pos: float4[n], xyz the place and w the mass. acc: float4[n], xyz the acceleration and w 0:
//   acc[i] = sum over j of m[j] * (r[j] - r[i]) / (|r[j] - r[i]|^2 + eps2)^(3/2)
// n is a multiple of 256, the grid n / 256, the block 256. eps2 > 0, since j = i is summed too.
#include <instructions.cuh>

#define TILE 256
#define BODIES 4 // per thread: one shared load serves four interactions
#define OWNERS (TILE / BODIES)
#define RESIDENT 4 // blocks that a multiprocessor holds at once: with none named, the H100's driver leaves
                   // registers unused and takes 6 % longer

// The 256 bodies of a block are owned four times over: each set of 64 threads has all of them, meets a
// quarter of every tile, and in the end the first set adds up what the four have found.
extern "C" __global__ void __launch_bounds__(TILE, RESIDENT)
gpud_nbody(const float4 *__restrict__ pos, float4 *__restrict__ acc, unsigned int n, float eps2)
{
    __shared__ float4 tile[TILE];
    stamp_begin();
    unsigned int owner = threadIdx.x % OWNERS, set = threadIdx.x / OWNERS;
    unsigned int own = blockIdx.x * TILE + owner;
    float4 self[BODIES], sum[BODIES];
#pragma unroll
    for (int i = 0; i < BODIES; i++) {
        self[i] = pos[own + i * OWNERS];
        sum[i] = make_float4(0, 0, 0, 0);
    }
    for (unsigned int first = 0; first < n; first += TILE) {
        tile[threadIdx.x] = pos[first + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < OWNERS; j++) {
            float4 other = tile[set * OWNERS + j];
#pragma unroll
            for (int i = 0; i < BODIES; i++) {
                float dx = other.x - self[i].x, dy = other.y - self[i].y, dz = other.z - self[i].z;
                float inverse = rsqrt_approx(dx * dx + (dy * dy + (dz * dz + eps2)));
                float factor = other.w * inverse * (inverse * inverse);
                sum[i].x += dx * factor;
                sum[i].y += dy * factor;
                sum[i].z += dz * factor;
            }
        }
        __syncthreads();
    }
    for (unsigned int giver = 1; giver < BODIES; giver++) {
        if (set == giver)
#pragma unroll
            for (int i = 0; i < BODIES; i++)
                tile[i * OWNERS + owner] = sum[i];
        __syncthreads();
        if (set == 0)
#pragma unroll
            for (int i = 0; i < BODIES; i++) {
                float4 more = tile[i * OWNERS + owner];
                sum[i].x += more.x;
                sum[i].y += more.y;
                sum[i].z += more.z;
            }
        __syncthreads();
    }
    if (set == 0)
#pragma unroll
        for (int i = 0; i < BODIES; i++)
            acc[own + i * OWNERS] = sum[i];
    stamp_end();
}
