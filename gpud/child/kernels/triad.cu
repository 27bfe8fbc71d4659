// STREAM triad, a = b + s * c, sixteen bytes at a time: 48 bytes of traffic per element.
// float4[n4] each; any grid and block. The arrays must not overlap.
#include <instructions.cuh>

extern "C" __global__ void gpud_triad(float4 *__restrict__ a, const float4 *__restrict__ b,
                                      const float4 *__restrict__ c, float s, unsigned int n4)
{
    stamp_begin();
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n4; i += step) {
        float4 x = b[i], y = c[i];
        a[i] = make_float4(x.x + s * y.x, x.y + s * y.y, x.z + s * y.z, x.w + s * y.w);
    }
    linger();
    stamp_end();
}
