// Memory latency: loads of which each has the address of the next one.

// Links n lines of 128 bytes, a power of two, into one ring in the order of a linear congruential
// generator, x' = (x * factor + step) mod n. Any grid and block.
extern "C" __global__ void gpud_ring(unsigned long long *ring, unsigned int n, unsigned int factor,
                                     unsigned int step)
{
    for (unsigned int x = blockIdx.x * blockDim.x + threadIdx.x; x < n; x += gridDim.x * blockDim.x) {
        size_t next = (x * factor + step) & (n - 1);
        ring[(size_t)x * 16] = (unsigned long long)(ring + next * 16);
    }
}

// Follows `loads` links from *place on, past the L1 cache, and leaves there where it has come to.
// Grid 1, block 1.
extern "C" __global__ void gpud_chase(unsigned long long *place, unsigned int loads)
{
    unsigned long long next = *place;
    for (unsigned int i = 0; i < loads; i++)
        next = __ldcg((const unsigned long long *)next);
    *place = next;
}
