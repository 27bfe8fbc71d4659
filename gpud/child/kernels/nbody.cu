// One evaluation of all pair forces among n bodies; by convention 20 flops per interaction.
//
// pos: float4[n], xyz the place and w the mass. acc: float4[n], xyz the acceleration and w 0:
//   acc[i] = sum over j of m[j] * (r[j] - r[i]) / (|r[j] - r[i]|^2 + eps2)^(3/2)
// n is a multiple of 256, the grid n / 256, the block 256. eps2 > 0, since j = i is summed too.

#include <instructions.cuh>

#define TILE 256

extern "C" __global__ void __launch_bounds__(TILE)
gpud_nbody(const float4 *__restrict__ pos, float4 *__restrict__ acc, unsigned int n, float eps2)
{
    __shared__ float4 tile[TILE];
    unsigned int i = blockIdx.x * TILE + threadIdx.x;
    float4 self = pos[i];
    float x = 0, y = 0, z = 0;
    for (unsigned int first = 0; first < n; first += TILE) {
        tile[threadIdx.x] = pos[first + threadIdx.x];
        __syncthreads();
#pragma unroll 16
        for (int j = 0; j < TILE; j++) {
            float4 other = tile[j];
            float dx = other.x - self.x, dy = other.y - self.y, dz = other.z - self.z;
            float inverse = rsqrt_approx(dx * dx + (dy * dy + (dz * dz + eps2)));
            float factor = other.w * inverse * (inverse * inverse);
            x += dx * factor;
            y += dy * factor;
            z += dz * factor;
        }
        __syncthreads();
    }
    acc[i] = make_float4(x, y, z, 0);
}
