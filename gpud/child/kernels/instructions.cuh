// The machine instructions that CUDA C++ has no word for, one function each. Source: the PTX ISA.

// rsqrt, denormals flushed: the other form costs three more instructions per call for them.
__device__ __forceinline__ float rsqrt_approx(float x)
{
    float result;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// The clock of a multiprocessor, as the first thread of a grid reads it when it begins and ends, summed
// over launches: cycles, nanoseconds; and of the ends the launches and the last moment. Two variables:
// the address of one would be kept in registers from begin to end, which matmul_128 has to spill.
extern "C" __device__ unsigned long long gpud_begins[2], gpud_ends[4];

__device__ __forceinline__ bool is_first_thread()
{
    return (threadIdx.x | threadIdx.y | blockIdx.x | blockIdx.y) == 0;
}

__device__ __forceinline__ void read_clocks(unsigned long long &cycles, unsigned long long &ns)
{
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
}

// Before the last statement of a kernel whose blocks end within a microsecond: the first thread reads
// on, some 10 us, so that the clock can be told from its stamps.
__device__ __forceinline__ void linger()
{
    if (!is_first_thread())
        return;
#pragma unroll 1
    for (int i = 0; i < 512; i++) {
        unsigned long long cycles;
        asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    }
}

// The first and the last statement of a kernel. Nothing that they add comes back, so nobody waits.
__device__ __forceinline__ void stamp_begin()
{
    unsigned long long cycles, ns;
    if (!is_first_thread())
        return;
    read_clocks(cycles, ns);
    atomicAdd(&gpud_begins[0], cycles);
    atomicAdd(&gpud_begins[1], ns);
}

__device__ __forceinline__ void stamp_end()
{
    unsigned long long cycles, ns;
    if (!is_first_thread())
        return;
    read_clocks(cycles, ns);
    atomicAdd(&gpud_ends[0], cycles);
    atomicAdd(&gpud_ends[1], ns);
    atomicAdd(&gpud_ends[2], 1ull);
    gpud_ends[3] = ns;
}

__device__ __forceinline__ float float_of_fp16(unsigned short bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// bf16 is the upper half of a float.
__device__ __forceinline__ float float_of_bf16(unsigned short bits)
{
    return __uint_as_float((unsigned int)bits << 16);
}

// What follows needs compute capability 8.0.

// Begin to copy 16 bytes from global to shared memory, both addresses multiples of 16.
__device__ __forceinline__ void cp_async(void *shared, const void *global)
{
    unsigned int to = (unsigned int)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}

// Make one group of the copies that this thread has begun since the last group.
__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait until at most PENDING of this thread's groups, the youngest ones, are still under way.
template <int PENDING> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Load four 8 x 8 matrices of 16-bit elements for a warp: lane 8 i + r names row r of matrix i in
// shared memory; into[i] of lane l is row l / 4, columns l % 4 * 2 and the next, of matrix i.
__device__ __forceinline__ void ldmatrix(unsigned int (&into)[4], const void *row)
{
    unsigned int from = (unsigned int)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"(from)
                 : "memory");
}

// The same, of the transposed matrices.
__device__ __forceinline__ void ldmatrix_trans(unsigned int (&into)[4], const void *row)
{
    unsigned int from = (unsigned int)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"(from)
                 : "memory");
}

// sum[16][8] += a[16][16] * b[16][8] for a warp, FP16 in and FP32 out. In lane l, with r = l / 4 and
// c = l % 4 * 2, and two elements to a register:
//   a[0..3]: rows r, r + 8, r, r + 8 and columns c, c, c + 8, c + 8, and the next column each
//   b0, b1: rows c and c + 8, and the next row each, of column r
//   sum[0..3]: row r, columns c and c + 1; row r + 8, the same columns
__device__ __forceinline__ void mma(float (&sum)[4], const unsigned int (&a)[4], unsigned int b0,
                                    unsigned int b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same in other types, of which a register has two, one and four elements. With r = l / 4, c = l % 4
// and an element in the place of `c * 2 and the next`, every register holds the same bytes of a row of
// a, or column of b, as above: a[16][8] for tf32, a[16][32] for int8.
__device__ __forceinline__ void mma_bf16(float (&sum)[4], const unsigned int (&a)[4],
                                         unsigned int b0, unsigned int b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_tf32(float (&sum)[4], const unsigned int (&a)[4],
                                         unsigned int b0, unsigned int b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_int8(int (&sum)[4], const unsigned int (&a)[4],
                                         unsigned int b0, unsigned int b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
