// The functions of gpud/child/kernels/instructions.cuh on the CPU, from the same text: the PTX ISA.
// Loads of matrices and mma are collective; a copy comes as late as the waits allow.
#pragma once

#include "cuda_on_host.h"

#include <cmath>
#include <cstdint>
#include <cstring>

static uint64_t bank_conflicts;
extern "C" {
__attribute__((visibility("default"))) unsigned long long gpud_begins[2], gpud_ends[4];
}
static unsigned long long readings;

static bool is_first_thread()
{
    return !(threadIdx.x | threadIdx.y | blockIdx.x | blockIdx.y);
}

[[maybe_unused]] static void stamp_begin()
{
    if (!is_first_thread())
        return;
    gpud_begins[0] += 3 * ++readings; // three cycles a nanosecond
    gpud_begins[1] += readings;
}

[[maybe_unused]] static void linger() {}

[[maybe_unused]] static void stamp_end()
{
    if (!is_first_thread())
        return;
    gpud_ends[0] += 3 * ++readings;
    gpud_ends[1] += readings;
    gpud_ends[2]++;
    gpud_ends[3] = readings;
}

static float float_of(unsigned int pair, unsigned int which)
{
    _Float16 half;
    uint16_t bits = (uint16_t)(pair >> 16 * which);
    memcpy(&half, &bits, sizeof half);
    return (float)half;
}

[[maybe_unused]] static float float_of_fp16(unsigned short bits)
{
    return float_of(bits, 0);
}

static float float_of_bf16(unsigned short bits)
{
    return __uint_as_float((unsigned int)bits << 16);
}

static float rsqrt_approx(float x)
{
    return 1 / std::sqrt(x);
}

static void cp_async(void *shared, const void *global)
{
    running->copies.back().push_back({shared, global});
}

static void cp_async_commit()
{
    running->copies.emplace_back();
}

template <int PENDING> static void cp_async_wait()
{
    std::vector<std::vector<Copy>> &groups = running->copies;
    while (!waits_ignored && groups.size() - 1 > PENDING) {
        for (const Copy &copy : groups.front())
            memcpy(copy.to, copy.from, 16);
        groups.erase(groups.begin());
    }
}

// Eight rows are read in one pass if no two of them lie in the same sixteen bytes of the 32 banks.
static void count_conflicts(const void *const *rows)
{
    unsigned int seen = 0;
    for (int i = 0; i < 8; i++) {
        unsigned int bit = 1u << (uintptr_t)rows[i] / 16 % 8;
        bank_conflicts += (seen & bit) != 0;
        seen |= bit;
    }
}

static void load_matrices(unsigned int (&into)[4], const void *row, bool transposed)
{
    const Exchange &all = exchanged([&](Exchange &mine, unsigned int lane) { mine.row[lane] = row; });
    unsigned int r = running->lane / 4, c = running->lane % 4 * 2;
    for (int matrix = 0; matrix < 4; matrix++) {
        const uint16_t *const *rows = (const uint16_t *const *)all.row + 8 * matrix;
        if (running->lane == 0)
            count_conflicts(all.row + 8 * matrix);
        uint16_t first = transposed ? rows[c][r] : rows[r][c];
        uint16_t second = transposed ? rows[c + 1][r] : rows[r][c + 1];
        into[matrix] = first | (unsigned int)second << 16;
    }
}

static void ldmatrix(unsigned int (&into)[4], const void *row)
{
    load_matrices(into, row, false);
}

static void ldmatrix_trans(unsigned int (&into)[4], const void *row)
{
    load_matrices(into, row, true);
}

static void mma(float (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1)
{
    const Exchange &all = exchanged([&](Exchange &mine, unsigned int lane) {
        for (int i = 0; i < 8; i++)
            mine.a[lane][i] = float_of(a[i / 2], i % 2);
        for (int i = 0; i < 4; i++)
            mine.b[lane][i] = float_of(i / 2 ? b1 : b0, i % 2);
    });
    unsigned int group = running->lane / 4, column = running->lane % 4 * 2;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++) { // the lane that holds an element, and where it does
            float left = all.a[group * 4 + k % 8 / 2][k / 8 * 4 + i / 2 * 2 + k % 2];
            float right = all.b[(column + i % 2) * 4 + k % 8 / 2][k / 8 * 2 + k % 2];
            sum[i] += left * right;
        }
}

// sum[16][8] += a[16][32 bytes] * b[32 bytes][8]; `dot` multiplies what is in two registers.
template <class Sum, class Dot>
static void mma_of_words(Sum (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1,
                         const Dot &dot)
{
    const Exchange &all = exchanged([&](Exchange &mine, unsigned int lane) {
        memcpy(mine.words_a[lane], a, sizeof a);
        mine.words_b[lane][0] = b0;
        mine.words_b[lane][1] = b1;
    });
    unsigned int group = running->lane / 4, column = running->lane % 4 * 2;
    for (int i = 0; i < 4; i++)
        for (int word = 0; word < 8; word++)
            sum[i] += dot(all.words_a[group * 4 + word % 4][word / 4 * 2 + i / 2],
                          all.words_b[(column + i % 2) * 4 + word % 4][word / 4]);
}

[[maybe_unused]]
static void mma_bf16(float (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1)
{
    mma_of_words(sum, a, b0, b1, [](unsigned int left, unsigned int right) {
        return float_of_bf16(left & 0xffff) * float_of_bf16(right & 0xffff)
               + float_of_bf16(left >> 16) * float_of_bf16(right >> 16);
    });
}

[[maybe_unused]]
static void mma_tf32(float (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1)
{
    mma_of_words(sum, a, b0, b1, [](unsigned int left, unsigned int right) {
        return __uint_as_float(left & ~0x1fffu) * __uint_as_float(right & ~0x1fffu);
    });
}

[[maybe_unused]]
static void mma_int8(int (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1)
{
    mma_of_words(sum, a, b0, b1, [](unsigned int left, unsigned int right) {
        int total = 0;
        for (int byte = 0; byte < 4; byte++)
            total += (int8_t)(left >> 8 * byte) * (int8_t)(right >> 8 * byte);
        return total;
    });
}
