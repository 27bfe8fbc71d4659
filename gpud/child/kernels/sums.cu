// Weighted sums of the rows or columns of a matrix of whole numbers, in 64 bits that wrap round:
// sums[p] += weights[q] * matrix[p * across + q * along]. For sums of columns, across is 1 and along
// n; for those of rows the other way round. n is a multiple of 64, the grid (n / 64, n / 64), the block
// (64, 1). An element that is no whole number counts as one that no product has.
#include <instructions.cuh>

#define PART 64
#define NO_WHOLE_NUMBER (1 << 30)

// The conversion of what is too large for an int gives another number than it was.
template <class Real> __device__ __forceinline__ int whole(Real value)
{
    int number = (int)value;
    return (Real)number == value ? number : NO_WHOLE_NUMBER;
}

template <class Element> __device__ __forceinline__ int fp16(Element bits)
{
    return whole(float_of_fp16(bits));
}

template <class Element> __device__ __forceinline__ int bf16(Element bits)
{
    return whole(float_of_bf16(bits));
}

template <class Element> __device__ __forceinline__ int integer(Element value)
{
    return value;
}

template <class Element, int (*VALUE)(Element)>
__device__ __forceinline__ void add_up(const Element *__restrict__ matrix,
                                       const unsigned long long *__restrict__ weights,
                                       unsigned long long *sums, unsigned int across,
                                       unsigned int along)
{
    size_t own = blockIdx.x * PART + threadIdx.x, first = blockIdx.y * PART;
    const Element *from = matrix + own * across + first * along;
    unsigned long long sum = 0;
    for (unsigned int i = 0; i < PART; i++)
        sum += weights[first + i] * (unsigned long long)(long long)VALUE(from[(size_t)i * along]);
    atomicAdd(&sums[own], sum);
}

#define SUMS(name, element, value)                                                                 \
    extern "C" __global__ void __launch_bounds__(PART)                                             \
    gpud_sums_##name(const element *__restrict__ matrix,                                           \
                     const unsigned long long *__restrict__ weights, unsigned long long *sums,     \
                     unsigned int across, unsigned int along)                                      \
    {                                                                                              \
        add_up<element, value>(matrix, weights, sums, across, along);                              \
    }

SUMS(fp32, float, whole)
SUMS(fp64, double, whole)
SUMS(fp16, unsigned short, fp16)
SUMS(bf16, unsigned short, bf16)
SUMS(int8, signed char, integer)
SUMS(int32, int, integer)
